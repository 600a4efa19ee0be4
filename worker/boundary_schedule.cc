#include "worker/boundary_schedule.h"

#include <algorithm>
#include <cmath>

namespace everstep {
namespace {

// A value below 1 is a share of all steps.
int64_t WholeSteps(double value, int64_t max_steps) {
  if (value < 1) value = std::ceil(static_cast<double>(max_steps) * value);
  return std::max<int64_t>(1, static_cast<int64_t>(value));
}

IntervalStrategy ParseStrategy(const std::string& name) {
  if (name == "no") return IntervalStrategy::kNo;
  return name == "epoch" ? IntervalStrategy::kEpoch : IntervalStrategy::kSteps;
}

}  // namespace

BoundarySchedule::BoundarySchedule(const TrainingArguments& arguments, int64_t max_steps,
                                   int64_t updates_per_epoch)
    : logging_(ParseStrategy(arguments.logging_strategy)),
      eval_(arguments.eval_strategy),
      save_(arguments.save_strategy),
      logging_first_step_(arguments.logging_first_step),
      max_steps_(max_steps),
      updates_per_epoch_(std::max<int64_t>(1, updates_per_epoch)),
      logging_steps_(WholeSteps(arguments.logging_steps, max_steps)),
      eval_steps_(arguments.eval_steps > 0 ? WholeSteps(arguments.eval_steps, max_steps)
                                           : logging_steps_),
      save_steps_(WholeSteps(arguments.save_steps, max_steps)) {}

bool BoundarySchedule::EpochEnds(int64_t step) const {
  return step % updates_per_epoch_ == 0 || step == max_steps_;
}

Due BoundarySchedule::At(int64_t step) const {
  Due due;
  due.log = (logging_ == IntervalStrategy::kSteps && step % logging_steps_ == 0) ||
            (logging_ == IntervalStrategy::kEpoch && EpochEnds(step)) ||
            (step == 1 && logging_first_step_);
  due.evaluate = (eval_ == IntervalStrategy::kSteps && step % eval_steps_ == 0) ||
                 (eval_ == IntervalStrategy::kEpoch && EpochEnds(step));
  due.save =
      (save_ == IntervalStrategy::kSteps && (step % save_steps_ == 0 || step == max_steps_)) ||
      (save_ == IntervalStrategy::kEpoch && EpochEnds(step));
  return due;
}

}  // namespace everstep
