#include "worker/optim/lr_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>
#include <utility>

#include "common/strings.h"

namespace everstep {
namespace {

constexpr std::array<std::string_view, 9> kNames{"linear",
                                                 "cosine",
                                                 "cosine_with_restarts",
                                                 "polynomial",
                                                 "constant",
                                                 "constant_with_warmup",
                                                 "inverse_sqrt",
                                                 "cosine_with_min_lr",
                                                 "warmup_stable_decay"};

double CosineFactor(double cycles, double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * cycles * 2.0 * progress));
}

int64_t WarmupSteps(const TrainingArguments& training, int64_t max_steps) {
  if (training.warmup_steps >= 1) return static_cast<int64_t>(training.warmup_steps);
  const double ratio = training.warmup_steps > 0 ? training.warmup_steps : training.warmup_ratio;
  return static_cast<int64_t>(std::ceil(static_cast<double>(max_steps) * ratio));
}

}  // namespace

Result<LrSchedule::Kind> LrSchedule::ParseKind(const std::string& name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) {
    return InvalidArgument("lr_scheduler_type: '" + name + "' is not a schedule" +
                           DidYouMean(name, kNames));
  }
  constexpr std::array kKinds{Kind::kLinear,      Kind::kCosine,          Kind::kCosineWithRestarts,
                              Kind::kPolynomial,  Kind::kConstant,        Kind::kConstantWithWarmup,
                              Kind::kInverseSqrt, Kind::kCosineWithMinLr, Kind::kWarmupStableDecay};
  return kKinds[static_cast<size_t>(found - kNames.begin())];
}

Result<LrSchedule> LrSchedule::Create(const TrainingArguments& training, int64_t max_steps) {
  LrSchedule schedule;
  ASSIGN_OR_RETURN(schedule.kind_, ParseKind(training.lr_scheduler_type));
  schedule.base_rate_ = training.learning_rate;
  schedule.max_steps_ = max_steps;
  schedule.warmup_ = WarmupSteps(training, max_steps);
  if (schedule.kind_ == Kind::kCosineWithRestarts) schedule.cycles_ = 1;
  // LLaMA-Factory's defaults for this one: a third of what follows the warm-up is stable.
  schedule.stable_steps_ = (max_steps - schedule.warmup_) / 3;
  schedule.decay_steps_ = max_steps - schedule.warmup_ - schedule.stable_steps_;
  RETURN_IF_ERROR(schedule.ReadArguments(training.lr_scheduler_kwargs));
  if (schedule.timescale_ <= 0) {
    schedule.timescale_ = schedule.warmup_ > 0 ? static_cast<double>(schedule.warmup_) : 10000.0;
  }
  return schedule;
}

Status LrSchedule::ReadArguments(const Json& arguments) {
  for (const auto& [key, value] : arguments.items()) {
    if (value.is_string()) {
      RETURN_IF_ERROR(ReadRamp(key, value.get<std::string>()));
    } else if (value.is_number()) {
      RETURN_IF_ERROR(ReadNumber(key, value.get<double>()));
    } else {
      return InvalidArgument("lr_scheduler_kwargs." + key + ": must be a number");
    }
  }
  const bool has_rate = arguments.contains("min_lr_rate");
  const bool has_min = arguments.contains("min_lr");
  if (kind_ == Kind::kCosineWithMinLr && has_rate == has_min) {
    return InvalidArgument(
        "lr_scheduler_kwargs: cosine_with_min_lr needs one of min_lr and min_lr_rate");
  }
  if (kind_ == Kind::kPolynomial && lr_end_ >= base_rate_) {
    return InvalidArgument("lr_scheduler_kwargs.lr_end: must be below learning_rate");
  }
  return {};
}

Status LrSchedule::ReadNumber(const std::string& key, double number) {
  const bool stable_decay = kind_ == Kind::kWarmupStableDecay;
  const bool cosine = kind_ == Kind::kCosine || kind_ == Kind::kCosineWithRestarts ||
                      kind_ == Kind::kCosineWithMinLr || stable_decay;
  if (key == "num_cycles" && cosine) {
    cycles_ = number;
  } else if (key == "lr_end" && kind_ == Kind::kPolynomial) {
    lr_end_ = number;
  } else if (key == "power" && kind_ == Kind::kPolynomial) {
    power_ = number;
  } else if (key == "timescale" && kind_ == Kind::kInverseSqrt) {
    if (number <= 0) return InvalidArgument("lr_scheduler_kwargs.timescale: must be above 0");
    timescale_ = number;
  } else if ((key == "min_lr_rate" && kind_ == Kind::kCosineWithMinLr) ||
             (key == "min_lr_ratio" && stable_decay)) {
    min_lr_rate_ = number;
  } else if (key == "min_lr" && kind_ == Kind::kCosineWithMinLr) {
    min_lr_rate_ = number / base_rate_;
  } else if (key == "num_stable_steps" && stable_decay) {
    stable_steps_ = static_cast<int64_t>(number);
  } else if (key == "num_decay_steps" && stable_decay) {
    decay_steps_ = static_cast<int64_t>(number);
  } else {
    return InvalidArgument("lr_scheduler_kwargs." + key +
                           ": is not an argument of this schedule: remove it");
  }
  return {};
}

Status LrSchedule::ReadRamp(const std::string& key, const std::string& name) {
  const bool warmup = key == "warmup_type";
  if (kind_ != Kind::kWarmupStableDecay || (!warmup && key != "decay_type")) {
    return InvalidArgument("lr_scheduler_kwargs." + key + ": must be a number");
  }
  Ramp& ramp = warmup ? warmup_ramp_ : decay_ramp_;
  if (name == "linear") {
    ramp = Ramp::kLinear;
  } else if (name == "cosine") {
    ramp = Ramp::kCosine;
  } else if (name == "1-sqrt") {
    ramp = Ramp::kOneMinusSqrt;
  } else {
    return InvalidArgument("lr_scheduler_kwargs." + key +
                           ": must be linear, cosine or 1-sqrt; is '" + name + "'");
  }
  return {};
}

double LrSchedule::Progress(int64_t step) const {
  return static_cast<double>(step - warmup_) /
         static_cast<double>(std::max<int64_t>(1, max_steps_ - warmup_));
}

double LrSchedule::Factor(int64_t step) const {
  if (kind_ == Kind::kConstant) return 1.0;
  if (step >= warmup_) return Decay(step);
  if (kind_ == Kind::kWarmupStableDecay) return StableWarmup(step);
  return static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup_));
}

double LrSchedule::Decay(int64_t step) const {
  const double progress = Progress(step);
  switch (kind_) {
    case Kind::kLinear:
      return std::max(0.0, static_cast<double>(max_steps_ - step) /
                               static_cast<double>(std::max<int64_t>(1, max_steps_ - warmup_)));
    case Kind::kCosine:
      return std::max(0.0, CosineFactor(cycles_, progress));
    case Kind::kCosineWithRestarts:
      if (progress >= 1.0) return 0.0;
      return std::max(
          0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * std::fmod(cycles_ * progress, 1.0))));
    case Kind::kPolynomial:
      return Polynomial(step);
    case Kind::kConstant:
    case Kind::kConstantWithWarmup:
      return 1.0;
    case Kind::kInverseSqrt: {
      const double shift = timescale_ - static_cast<double>(warmup_);
      return 1.0 / std::sqrt((static_cast<double>(step) + shift) / timescale_);
    }
    case Kind::kCosineWithMinLr:
      return std::max(0.0, CosineFactor(cycles_, progress) * (1.0 - min_lr_rate_) + min_lr_rate_);
    case Kind::kWarmupStableDecay:
      return StableDecay(step);
  }
  return 1.0;
}

double LrSchedule::Polynomial(int64_t step) const {
  if (step > max_steps_) return lr_end_ / base_rate_;
  const double range = base_rate_ - lr_end_;
  const double remaining =
      1.0 - static_cast<double>(step - warmup_) / static_cast<double>(max_steps_ - warmup_);
  return (range * std::pow(remaining, power_) + lr_end_) / base_rate_;
}

double LrSchedule::StableWarmup(int64_t step) const {
  const double progress =
      static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup_));
  double factor = progress;
  if (warmup_ramp_ == Ramp::kCosine) {
    factor = 0.5 * (1.0 - std::cos(std::numbers::pi * progress));
  } else if (warmup_ramp_ == Ramp::kOneMinusSqrt) {
    factor = 1.0 - std::sqrt(1.0 - progress);
  }
  return std::max(0.0, factor * (1.0 - min_lr_rate_) + min_lr_rate_);
}

double LrSchedule::StableDecay(int64_t step) const {
  if (step < warmup_ + stable_steps_) return 1.0;
  if (step >= warmup_ + stable_steps_ + decay_steps_) return min_lr_rate_;
  const double progress = static_cast<double>(step - warmup_ - stable_steps_) /
                          static_cast<double>(std::max<int64_t>(1, decay_steps_));
  double factor = 1.0 - progress;
  if (decay_ramp_ == Ramp::kCosine) {
    factor = CosineFactor(cycles_, progress);
  } else if (decay_ramp_ == Ramp::kOneMinusSqrt) {
    factor = 1.0 - std::sqrt(progress);
  }
  return std::max(0.0, factor * (1.0 - min_lr_rate_) + min_lr_rate_);
}

}  // namespace everstep
