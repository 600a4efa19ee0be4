#include "worker/data/pretrain.h"

#include <algorithm>

namespace everstep {
namespace {

Example Labeled(std::vector<int32_t> ids, int32_t pad_id) {
  Example example;
  example.labels = ids;
  std::replace(example.labels.begin(), example.labels.end(), pad_id, kIgnoreLabel);
  example.ids = std::move(ids);
  return example;
}

}  // namespace

std::vector<Example> EncodePretrain(const Tokenizer& tokenizer,
                                    std::span<const std::string_view> texts,
                                    const PretrainOptions& options) {
  const bool bos = tokenizer.add_bos_token() && tokenizer.bos_id().has_value();
  const std::string start = bos && !options.packing ? *tokenizer.bos_token() : "";
  std::vector<std::string> full;
  full.reserve(texts.size());
  for (std::string_view text : texts) full.push_back(start + std::string(text) + options.end_text);
  const std::vector<std::string_view> views(full.begin(), full.end());
  std::vector<std::vector<int32_t>> encoded = tokenizer.EncodeBatch(views, false);

  const auto length = static_cast<size_t>(options.length);
  std::vector<Example> examples;
  if (!options.packing) {
    for (std::vector<int32_t>& ids : encoded) {
      ids.resize(std::min(ids.size(), length));
      examples.push_back(Labeled(std::move(ids), options.pad_id));
    }
    return examples;
  }
  std::vector<int32_t> block;
  block.reserve(length);
  for (const std::vector<int32_t>& ids : encoded) {
    for (const int32_t id : ids) {
      block.push_back(id);
      if (block.size() < length) continue;
      if (bos) block[0] = *tokenizer.bos_id();
      examples.push_back(Labeled(block, options.pad_id));
      block.clear();
    }
  }
  return examples;
}

}  // namespace everstep
