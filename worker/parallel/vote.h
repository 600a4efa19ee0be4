// What the members tell each other at the end of a step. It rides in the all-gather of the
// reduced gradients, so agreeing costs no message of its own.
#ifndef EVERSTEP_WORKER_PARALLEL_VOTE_H_
#define EVERSTEP_WORKER_PARALLEL_VOTE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/result.h"

namespace everstep {

// A logical rank's part of the step's loss.
struct ShareVote {
  int32_t logical_rank = 0;
  int32_t reserved = 0;
  double loss_sum = 0;
  int64_t input_tokens = 0;
};

struct Vote {
  int64_t step = 0;
  // Generation of the planned membership that the member knows of; 0 for none.
  uint64_t pending_generation = 0;
  bool stop = false;
  std::vector<ShareVote> shares;
};

// Votes of one job have the same length, whatever a member hosts.
size_t VoteBytes(int logical_world);
std::vector<std::byte> EncodeVote(const Vote& vote, int logical_world);
Result<Vote> DecodeVote(std::span<const std::byte> bytes);

// What follows from the votes of all members; every member computes the same.
struct Verdict {
  double loss_sum = 0;  // over the global batch, added in the order of the logical ranks
  int64_t input_tokens = 0;
  // All members know of this planned membership: it takes effect after this step. 0 for none.
  uint64_t switch_to_generation = 0;
  bool stop = false;  // at least one member was asked to stop
};
// kInternal when the votes are not for `step` or do not cover each of `logical_world` once.
Result<Verdict> CountVotes(std::span<const Vote> votes, int64_t step, int logical_world);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_PARALLEL_VOTE_H_
