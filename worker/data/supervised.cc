#include "worker/data/supervised.h"

#include <algorithm>

#include "worker/data/encode.h"
#include "worker/data/render.h"

namespace everstep {
namespace {

// Conversations rendered and tokenized at once: bounds the memory of the rendered text.
constexpr size_t kChunk = 1000;

void Prepend(std::vector<int32_t>& to, const std::vector<int32_t>& ids) {
  to.insert(to.begin(), ids.begin(), ids.end());
}

void Append(std::vector<int32_t>& to, const std::vector<int32_t>& ids) {
  to.insert(to.end(), ids.begin(), ids.end());
}

}  // namespace

TurnLengths FitTurn(int64_t source, int64_t target, int64_t room) {
  int64_t most_target;
  if (target * 2 < room) {
    most_target = room;
  } else if (source * 2 < room) {
    most_target = room - source;
  } else {
    const double share = static_cast<double>(target) / static_cast<double>(source + target);
    most_target = static_cast<int64_t>(static_cast<double>(room) * share);
  }
  const int64_t kept_target = std::min(most_target, target);
  return {.source = std::min(std::max<int64_t>(room - kept_target, 0), source),
          .target = kept_target};
}

Example BuildExample(std::span<const EncodedTurn> turns, const SupervisedOptions& options,
                     bool efficient_eos, int32_t eos_id) {
  Example example;
  int64_t total = efficient_eos ? 1 : 0;
  for (size_t i = 0; i < turns.size() && total < options.cutoff_len; ++i) {
    // With mask_history the last turn comes first, so that it is the one that is kept whole.
    const EncodedTurn& turn = turns[options.mask_history ? turns.size() - 1 - i : i];
    const TurnLengths fit =
        FitTurn(static_cast<int64_t>(turn.source.size()), static_cast<int64_t>(turn.target.size()),
                options.cutoff_len - total);
    total += fit.source + fit.target;

    std::vector<int32_t> ids(turn.source.begin(), turn.source.begin() + fit.source);
    std::vector<int32_t> labels =
        options.train_on_prompt
            ? ids
            : std::vector<int32_t>(static_cast<size_t>(fit.source), kIgnoreLabel);
    if (!options.train_on_prompt && efficient_eos && i != 0 && !labels.empty()) {
      labels[0] = eos_id;
    }
    ids.insert(ids.end(), turn.target.begin(), turn.target.begin() + fit.target);
    if (options.mask_history && i != 0) {
      labels.resize(ids.size(), kIgnoreLabel);
    } else {
      labels.insert(labels.end(), turn.target.begin(), turn.target.begin() + fit.target);
    }
    if (options.mask_history) {
      Prepend(example.ids, ids);
      Prepend(example.labels, labels);
    } else {
      Append(example.ids, ids);
      Append(example.labels, labels);
    }
  }
  if (efficient_eos) {
    example.ids.push_back(eos_id);
    example.labels.push_back(eos_id);
  }
  return example;
}

Result<std::vector<Example>> EncodeSupervised(const ChatFormat& format, const Tokenizer& tokenizer,
                                              std::span<const Conversation* const> conversations,
                                              const SupervisedOptions& options) {
  const RenderOptions render_options = {
      .drop_history_thoughts = options.mask_history && !format.preserve_thinking,
      .today = options.today};
  const int32_t eos_id = tokenizer.eos_id().value_or(0);
  SlotEncoder encoder(tokenizer);
  std::vector<Example> examples;
  examples.reserve(conversations.size());
  for (size_t begin = 0; begin < conversations.size(); begin += kChunk) {
    const size_t count = std::min(kChunk, conversations.size() - begin);
    std::vector<std::vector<RenderedTurn>> rendered;
    for (const Conversation* conversation : conversations.subspan(begin, count)) {
      auto turns = Render(format, *conversation, render_options);
      if (!turns) {
        return MakeError(turns.error().code, conversation->Where() + ": " + turns.error().message);
      }
      rendered.push_back(std::move(*turns));
    }
    std::vector<const Slots*> slots;
    for (const auto& turns : rendered) {
      for (const RenderedTurn& turn : turns) {
        slots.push_back(&turn.source);
        slots.push_back(&turn.target);
      }
    }
    std::vector<std::vector<int32_t>> ids = encoder.Encode(slots);
    size_t next = 0;
    for (const auto& turns : rendered) {
      std::vector<EncodedTurn> encoded(turns.size());
      for (EncodedTurn& turn : encoded) {
        turn.source = std::move(ids[next++]);
        turn.target = std::move(ids[next++]);
      }
      examples.push_back(BuildExample(encoded, options, format.efficient_eos, eos_id));
    }
  }
  return examples;
}

}  // namespace everstep
