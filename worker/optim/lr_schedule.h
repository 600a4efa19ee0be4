// Learning rate schedules with transformers' names and formulas, evaluated in the same order of
// double operations, so that the rates are equal to the last bit. Pure.
#ifndef EVERSTEP_WORKER_OPTIM_LR_SCHEDULE_H_
#define EVERSTEP_WORKER_OPTIM_LR_SCHEDULE_H_

#include <cstdint>
#include <string>

#include "common/result.h"
#include "worker/config/train_config.h"

namespace everstep {

class LrSchedule {
 public:
  // kInvalidArgument for an unknown lr_scheduler_type, an unknown or missing key of
  // lr_scheduler_kwargs. `max_steps` counts optimizer updates.
  static Result<LrSchedule> Create(const TrainingArguments& training, int64_t max_steps);

  // The rate that update `step` (from 0) uses. With warm-up the first one is 0.
  double LearningRate(int64_t step) const { return base_rate_ * Factor(step); }

  int64_t warmup_steps() const { return warmup_; }

 private:
  enum class Kind {
    kLinear,
    kCosine,
    kCosineWithRestarts,
    kPolynomial,
    kConstant,
    kConstantWithWarmup,
    kInverseSqrt,
    kCosineWithMinLr,
    kWarmupStableDecay,
  };

  // How warmup_stable_decay rises and falls.
  enum class Ramp { kLinear, kCosine, kOneMinusSqrt };

  static Result<Kind> ParseKind(const std::string& name);
  Status ReadArguments(const Json& arguments);
  Status ReadNumber(const std::string& key, double number);
  Status ReadRamp(const std::string& key, const std::string& name);
  double Factor(int64_t step) const;
  double StableWarmup(int64_t step) const;
  double Decay(int64_t step) const;
  double Polynomial(int64_t step) const;
  double StableDecay(int64_t step) const;
  // (step - warmup) / max(1, max_steps - warmup)
  double Progress(int64_t step) const;

  Kind kind_ = Kind::kLinear;
  double base_rate_ = 0;
  int64_t max_steps_ = 0;
  int64_t warmup_ = 0;
  // lr_scheduler_kwargs, with transformers' defaults.
  double cycles_ = 0.5;
  double lr_end_ = 1e-7;
  double power_ = 1.0;
  double timescale_ = 0;  // 0 = warm-up steps, or 10000
  double min_lr_rate_ = 0;
  int64_t stable_steps_ = 0;
  int64_t decay_steps_ = 0;
  Ramp warmup_ramp_ = Ramp::kLinear;
  Ramp decay_ramp_ = Ramp::kCosine;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_OPTIM_LR_SCHEDULE_H_
