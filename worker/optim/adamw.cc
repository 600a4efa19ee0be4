#include "worker/optim/adamw.h"

#include <cmath>

#include "common/check.h"

namespace everstep {

void ApplyAdamW(const AdamWOptions& options, const AdamWStep& step, const AdamWRange& range) {
  const size_t size = range.parameters.size();
  EVERSTEP_CHECK(range.gradient.size() == size && range.first_moment.size() == size &&
                 range.second_moment.size() == size);
  // The order of operations is that of torch's fused AdamW on the CPU: coefficients in double,
  // rounded to float once; the first moment as a linear interpolation.
  const auto number = static_cast<double>(step.step);
  const double correction1 = 1.0 - std::pow(options.beta1, number);
  const double correction2 = 1.0 - std::pow(options.beta2, number);
  const auto weight1 = static_cast<float>(1.0 - options.beta1);
  const auto weight2 = static_cast<float>(1.0 - options.beta2);
  const auto beta2 = static_cast<float>(options.beta2);
  const auto epsilon = static_cast<float>(options.epsilon);
  const auto keep = static_cast<float>(1.0 - step.learning_rate * step.weight_decay);
  const auto step_size = static_cast<float>(-(step.learning_rate / correction1));
  const auto root_correction2 = static_cast<float>(std::sqrt(correction2));
  const float gradient_scale = step.gradient_scale;

  float* __restrict parameter = range.parameters.data();
  const float* __restrict gradient = range.gradient.data();
  float* __restrict first = range.first_moment.data();
  float* __restrict second = range.second_moment.data();
  for (size_t i = 0; i < size; ++i) {
    const float g = gradient[i] * gradient_scale;
    const float m = first[i] + weight1 * (g - first[i]);
    const float v = second[i] * beta2 + weight2 * g * g;
    first[i] = m;
    second[i] = v;
    const float denominator = std::sqrt(v) / root_correction2 + epsilon;
    parameter[i] = parameter[i] * keep + step_size * m / denominator;
  }
}

}  // namespace everstep
