// Conversations to training sequences of stage sft.
#ifndef EVERSTEP_WORKER_DATA_SUPERVISED_H_
#define EVERSTEP_WORKER_DATA_SUPERVISED_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "worker/data/chat_format.h"
#include "worker/data/conversation.h"
#include "worker/data/example.h"
#include "worker/text/tokenizer.h"

namespace everstep {

struct SupervisedOptions {
  int64_t cutoff_len = 2048;
  bool mask_history = false;     // train on the last answer only, and cut the oldest turns first
  bool train_on_prompt = false;  // train on everything
  WallTime today = {};
};

struct EncodedTurn {
  std::vector<int32_t> source;
  std::vector<int32_t> target;
};

// How many ids of a source and of a target fit into `room`: the shorter side is kept whole when it
// is below half the room, else both are cut in proportion.
struct TurnLengths {
  int64_t source = 0;
  int64_t target = 0;
};
TurnLengths FitTurn(int64_t source, int64_t target, int64_t room);

// Cuts, joins and labels the turns of one conversation. `eos_id` is only used with efficient_eos.
Example BuildExample(std::span<const EncodedTurn> turns, const SupervisedOptions& options,
                     bool efficient_eos, int32_t eos_id);

// One example per conversation; all conversations are valid. An error names the row.
Result<std::vector<Example>> EncodeSupervised(const ChatFormat& format, const Tokenizer& tokenizer,
                                              std::span<const Conversation* const> conversations,
                                              const SupervisedOptions& options);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_SUPERVISED_H_
