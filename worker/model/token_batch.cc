#include "worker/model/token_batch.h"

#include <algorithm>

namespace everstep {
namespace {

Status CheckVocabulary(const MicroBatch& batch, int64_t vocab_size) {
  const auto outside = [&](int64_t id) { return id < 0 || id >= vocab_size; };
  for (int64_t id : batch.ids) {
    if (outside(id)) {
      return InvalidArgument("token id " + std::to_string(id) + " is outside the model's " +
                             std::to_string(vocab_size) +
                             " tokens: the tokenizer is not the model's, or set resize_vocab");
    }
  }
  for (int64_t label : batch.labels) {
    if (label != kIgnoreLabel && outside(label)) {
      return InvalidArgument("label " + std::to_string(label) + " is outside the model's " +
                             std::to_string(vocab_size) + " tokens");
    }
  }
  return {};
}

// How many tokens of the row count.
int64_t KeptLength(const MicroBatch& batch, int64_t row, bool every_token) {
  if (!every_token) {
    // All up to the one that predicts the last label.
    int64_t col = batch.cols - 1;
    while (col > 0 && batch.labels[static_cast<size_t>(row * batch.cols + col)] == kIgnoreLabel) {
      --col;
    }
    return col;
  }
  return batch.lengths.empty() ? batch.cols : batch.lengths[static_cast<size_t>(row)];
}

void AppendRow(const MicroBatch& batch, int64_t row, int64_t length, TokenBatch& tokens) {
  const int64_t first = row * batch.cols;
  int32_t segment = -1;
  int64_t scored = 0;
  for (int64_t col = 0; col < length; ++col) {
    const auto place = static_cast<size_t>(first + col);
    const int32_t own = batch.segments.empty() ? 1 : batch.segments[place];
    if (own == 0) continue;
    if (own != segment) tokens.sequences.push_back({tokens.tokens(), 0});
    segment = own;
    ++tokens.sequences.back().length;
    const int64_t label = col + 1 < batch.cols ? batch.labels[place + 1] : kIgnoreLabel;
    if (label != kIgnoreLabel) {
      tokens.scored.push_back(tokens.tokens());
      tokens.labels.push_back(label);
      ++scored;
    }
    tokens.ids.push_back(batch.ids[place]);
    tokens.positions.push_back(batch.positions.empty() ? col : batch.positions[place]);
    tokens.places.push_back(static_cast<int64_t>(place));
  }
  tokens.scored_per_row.push_back(scored);
}

}  // namespace

Result<TokenBatch> MakeTokenBatch(const MicroBatch& batch, int64_t vocab_size, bool every_token) {
  RETURN_IF_ERROR(CheckVocabulary(batch, vocab_size));
  TokenBatch tokens;
  tokens.rows = batch.rows;
  tokens.cols = batch.cols;
  for (int64_t row = 0; row < batch.rows; ++row) {
    AppendRow(batch, row, KeptLength(batch, row, every_token), tokens);
  }
  return tokens;
}

}  // namespace everstep
