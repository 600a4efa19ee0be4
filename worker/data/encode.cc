#include "worker/data/encode.h"

#include <unordered_set>

namespace everstep {
namespace {

// The cache is emptied when it holds this many texts: it serves the fixed parts of a template and
// the texts of the present call.
constexpr size_t kMaxCachedTexts = 65536;

}  // namespace

SlotEncoder::SlotEncoder(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), bos_id_(tokenizer.bos_id()), eos_id_(tokenizer.eos_id()) {}

void SlotEncoder::EncodeNewTexts(std::span<const Slots* const> slots) {
  if (cache_.size() > kMaxCachedTexts) cache_.clear();
  std::unordered_set<std::string_view> seen;
  std::vector<std::string_view> texts;
  for (const Slots* list : slots) {
    for (const Slot& slot : *list) {
      if (slot.kind != Slot::Kind::kText || cache_.contains(slot.text)) continue;
      if (seen.insert(slot.text).second) texts.push_back(slot.text);
    }
  }
  auto encoded = tokenizer_.EncodeBatch(texts, /*add_special_tokens=*/false);
  for (size_t i = 0; i < texts.size(); ++i) {
    cache_.emplace(texts[i], std::move(encoded[i]));
  }
}

void SlotEncoder::AppendToken(const Slot& slot, std::vector<int32_t>& ids) const {
  std::optional<int32_t> id;
  if (slot.kind == Slot::Kind::kBos) id = bos_id_;
  if (slot.kind == Slot::Kind::kEos) id = eos_id_;
  if (slot.kind == Slot::Kind::kToken) id = tokenizer_.TokenId(slot.text);
  if (id) ids.push_back(*id);
}

std::vector<std::vector<int32_t>> SlotEncoder::Encode(std::span<const Slots* const> slots) {
  EncodeNewTexts(slots);
  std::vector<std::vector<int32_t>> all(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    for (const Slot& slot : *slots[i]) {
      if (slot.kind != Slot::Kind::kText) {
        AppendToken(slot, all[i]);
        continue;
      }
      const std::vector<int32_t>& ids = cache_.at(slot.text);
      all[i].insert(all[i].end(), ids.begin(), ids.end());
    }
  }
  return all;
}

}  // namespace everstep
