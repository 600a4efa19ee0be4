// The members of a new generation agree on the newest training state and bring everybody to it.
//
// After a death some members may have applied a step that others have not (they were cut off in
// its last exchange); a newcomer holds nothing. The newest state among the members wins, and the
// first member that holds it feeds those behind from its memory. When nobody holds a state the
// caller starts from a checkpoint.
#ifndef EVERSTEP_WORKER_PARALLEL_STATE_AGREEMENT_H_
#define EVERSTEP_WORKER_PARALLEL_STATE_AGREEMENT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/training_state.h"

namespace everstep {

// What a member says of itself when it regroups.
struct StateHeader {
  int64_t version = TrainingState::kAbsent;
  // Of everything that must be equal on all ranks for the sums to mean anything: training file,
  // parameters' names and shapes, data, thread count. A difference is a fatal error.
  uint64_t workload = 0;
};

// The decision, from the headers in member order. Pure.
struct StateDecision {
  bool nobody = false;      // no member holds a state
  int holder = -1;          // first member with the newest state
  std::vector<int> behind;  // members that the holder feeds, ascending
};
Result<StateDecision> DecideState(std::span<const StateHeader> headers);

struct AgreedState {
  bool nobody = false;
  bool received = false;  // this member was fed: the model must refresh what it derives
};
// Collective over `communicator`. kFailedPrecondition when the members' workloads differ.
Result<AgreedState> AgreeOnState(Communicator& communicator, uint64_t workload,
                                 TrainingState& state);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_PARALLEL_STATE_AGREEMENT_H_
