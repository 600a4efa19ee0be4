#include "worker/parallel/apply_update.h"

#include <ATen/Parallel.h>

#include "worker/optim/adamw.h"
#include "worker/optim/clip.h"

namespace everstep {

void ApplyUpdate(const TrainingArguments& arguments, const Update& update, TrainingState& state) {
  constexpr int64_t kGrain = 65536;
  const AdamWOptions options{arguments.adam_beta1, arguments.adam_beta2, arguments.adam_epsilon};
  const float clip = ClipCoefficient(update.gradient_norm, arguments.max_grad_norm);
  const std::span<float> parameters = state.Parameters();
  const std::span<float> first = state.FirstMoment(), second = state.SecondMoment();
  for (const LayoutEntry& entry : state.layout().entries) {
    const AdamWStep step{.step = update.number,
                         .learning_rate = update.learning_rate * entry.lr_scale,
                         .weight_decay = entry.decay ? arguments.weight_decay : 0.0,
                         .gradient_scale = clip};
    at::parallel_for(0, entry.numel, kGrain, [&](int64_t begin, int64_t end) {
      const auto at = static_cast<size_t>(entry.offset + begin);
      const auto size = static_cast<size_t>(end - begin);
      ApplyAdamW(options, step,
                 {parameters.subspan(at, size), update.gradient.subspan(at, size),
                  first.subspan(at, size), second.subspan(at, size)});
    });
  }
}

}  // namespace everstep
