// Which checkpoints to remove: a pure function.
#ifndef EVERSTEP_WORKER_CHECKPOINT_RETENTION_H_
#define EVERSTEP_WORKER_CHECKPOINT_RETENTION_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace everstep {

struct RetentionOptions {
  // save_total_limit. Absent or below 1: everything is kept.
  std::optional<int64_t> total_limit;
  std::optional<int64_t> best_step;  // never removed (load_best_model_at_end)
  int64_t milestone_steps = 0;       // multiples of it are never removed; 0: there are none
};

struct RetainedCheckpoint {
  int64_t step = 0;
  bool valid = false;
  bool resumable = true;
};

// Steps to remove, ascending. Kept are the `total_limit` valid ones with the highest steps, always
// the newest valid one that can be resumed from, the best one, and milestones (which are not
// counted). An invalid one is removed when
// it is older than all that are kept for their number; it never counts as one of them.
std::vector<int64_t> StepsToRemove(std::span<const RetainedCheckpoint> checkpoints,
                                   const RetentionOptions& options);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_RETENTION_H_
