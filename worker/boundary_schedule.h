// What is due at the end of a step: log line, evaluation, checkpoint. transformers' rules, pure.
#ifndef EVERSTEP_WORKER_BOUNDARY_SCHEDULE_H_
#define EVERSTEP_WORKER_BOUNDARY_SCHEDULE_H_

#include <cstdint>

#include "worker/config/train_config.h"

namespace everstep {

struct Due {
  bool log = false;
  bool evaluate = false;
  bool save = false;
};

class BoundarySchedule {
 public:
  BoundarySchedule(const TrainingArguments& arguments, int64_t max_steps,
                   int64_t updates_per_epoch);

  // `step` counts completed updates, from 1.
  Due At(int64_t step) const;

  // In whole steps.
  int64_t logging_steps() const { return logging_steps_; }
  int64_t eval_steps() const { return eval_steps_; }
  int64_t save_steps() const { return save_steps_; }

 private:
  bool EpochEnds(int64_t step) const;

  IntervalStrategy logging_, eval_, save_;
  bool logging_first_step_;
  int64_t max_steps_, updates_per_epoch_;
  int64_t logging_steps_, eval_steps_, save_steps_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_BOUNDARY_SCHEDULE_H_
