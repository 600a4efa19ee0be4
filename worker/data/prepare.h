// From a training file to token ids: reads the data sets, converts them to conversations, applies
// the template, cuts, masks, packs, mixes and splits, all with LLaMA-Factory 0.9.5's results.
#ifndef EVERSTEP_WORKER_DATA_PREPARE_H_
#define EVERSTEP_WORKER_DATA_PREPARE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "worker/config/train_config.h"
#include "worker/data/example.h"
#include "worker/text/tokenizer.h"

namespace everstep {

struct PreparedData {
  std::vector<Example> train;
  // One entry named "" for val_size or eval_dataset, one per data set with eval_on_each_dataset;
  // a name goes into the metrics: eval_<name>_loss.
  std::vector<std::pair<std::string, std::vector<Example>>> eval;
  int32_t pad_id = 0;
  // What micro-batches are padded to: 8 for sft, 1 for pt.
  int64_t pad_multiple = 8;
  bool packed = false;        // rows hold several sequences
  bool neat_packed = false;   // ... that must not see each other
  int new_tokens = 0;         // ids that the template or add_tokens added to the tokenizer
  bool resize_vocab = false;  // as in the file, or because add_tokens made new ids
  std::string template_name;
  int64_t dropped_examples = 0;
  // One line each, for the log: dropped examples, new tokens, guessed template.
  std::vector<std::string> warnings;
};

// `tokenizer` gets what the training file and the template ask for (eos and pad token, further
// special tokens, chat template); save it in that state. `today` is the date that some tool
// prompts contain (UTC). Errors are meant for the person who wrote the file: they name the file,
// line or row, what is wrong and what to do.
Result<PreparedData> PrepareData(const TrainConfig& config, Tokenizer& tokenizer, WallTime today);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_PREPARE_H_
