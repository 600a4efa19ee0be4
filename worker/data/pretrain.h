// Plain text to training sequences of stage pt.
#ifndef EVERSTEP_WORKER_DATA_PRETRAIN_H_
#define EVERSTEP_WORKER_DATA_PRETRAIN_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/data/example.h"
#include "worker/text/tokenizer.h"

namespace everstep {

struct PretrainOptions {
  int64_t length = 2048;  // of a block, or the most of one text
  bool packing = true;    // join all texts and cut blocks of exactly `length`
  std::string end_text;   // put behind every text: the eos token
  int32_t pad_id = 0;     // ids equal to it are not trained on, wherever they come from
};

// Examples of one map batch. With packing, what is left over at its end is dropped. A tokenizer
// that adds bos gets it at the start of every text, or as the first id of every block.
std::vector<Example> EncodePretrain(const Tokenizer& tokenizer,
                                    std::span<const std::string_view> texts,
                                    const PretrainOptions& options);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_PRETRAIN_H_
