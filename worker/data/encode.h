// Rendered text to token ids, many pieces at once.
#ifndef EVERSTEP_WORKER_DATA_ENCODE_H_
#define EVERSTEP_WORKER_DATA_ENCODE_H_

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "worker/data/chat_format.h"
#include "worker/text/tokenizer.h"

namespace everstep {

// Each text slot is tokenized by itself, without the tokenizer's own special tokens. Texts that
// occur again (the fixed parts of a template) are tokenized once. Not thread-safe; the tokenizer
// runs its own threads.
class SlotEncoder {
 public:
  explicit SlotEncoder(const Tokenizer& tokenizer);

  // Element i = the ids of `slots[i]`.
  std::vector<std::vector<int32_t>> Encode(std::span<const Slots* const> slots);

 private:
  void EncodeNewTexts(std::span<const Slots* const> slots);
  void AppendToken(const Slot& slot, std::vector<int32_t>& ids) const;

  const Tokenizer& tokenizer_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
  std::unordered_map<std::string, std::vector<int32_t>> cache_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_ENCODE_H_
