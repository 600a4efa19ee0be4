#include "worker/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace everstep {
namespace {

using torch::Tensor;

constexpr double kPi = std::numbers::pi;

// base ^ (2 i / dim).
Tensor Wavenumbers(double base, int64_t dim) {
  const Tensor exponents =
      torch::arange(0, dim, 2, torch::kInt64).to(torch::kFloat32) / static_cast<double>(dim);
  return at::pow(at::Scalar(base), exponents);
}

// Llama 3.1: long wavelengths are stretched, short ones are not, between them both are blended.
Tensor Llama3Frequencies(const RopeConfig& rope, const Tensor& frequencies) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const double low = original / rope.low_freq_factor, high = original / rope.high_freq_factor;
  const Tensor wavelengths = 2 * kPi / frequencies;
  const Tensor stretched = torch::where(wavelengths > low, frequencies / rope.factor, frequencies);
  const Tensor smooth = (original / wavelengths - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  const Tensor blended = (1 - smooth) * stretched / rope.factor + smooth * stretched;
  const Tensor medium = (wavelengths < high).logical_not() & (wavelengths > low).logical_not();
  return torch::where(medium, blended, stretched);
}

// YaRN (Peng et al., 2023, section 3.2): dimensions that turn often keep their frequency, those
// that turn less than once are interpolated, with a ramp between.
Tensor YarnFrequencies(const RopeConfig& rope, int64_t dim) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const auto size = static_cast<double>(dim);
  const auto dimension = [&](double turns) {
    return size * std::log(original / (turns * 2 * kPi)) / (2 * std::log(rope.theta));
  };
  double low = dimension(rope.beta_fast), high = dimension(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  const Tensor ramp = ((torch::arange(dim / 2, torch::kFloat32) - low) / (high - low)).clamp(0, 1);
  const Tensor waves = Wavenumbers(rope.theta, dim);
  const Tensor own = 1 - ramp;
  return 1.0 / (rope.factor * waves) * (1 - own) + 1.0 / waves * own;
}

}  // namespace

Tensor RopeFrequencies(const ModelConfig& config, int64_t positions) {
  const RopeConfig& rope = config.rope;
  const int64_t dim = config.head_dim;
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return 1.0 / Wavenumbers(rope.theta, dim);
    case RopeScaling::kLinear:
      return 1.0 / Wavenumbers(rope.theta, dim) / rope.factor;
    case RopeScaling::kLlama3:
      return Llama3Frequencies(rope, 1.0 / Wavenumbers(rope.theta, dim));
    case RopeScaling::kYarn:
      return YarnFrequencies(rope, dim);
    case RopeScaling::kDynamic: {
      const auto longest = static_cast<double>(config.max_position_embeddings);
      const double length = std::max(longest, static_cast<double>(positions));
      const auto size = static_cast<double>(dim);
      const double stretch = rope.factor * length / longest - (rope.factor - 1);
      return 1.0 / Wavenumbers(rope.theta * std::pow(stretch, size / (size - 2)), dim);
    }
  }
  return {};
}

double RopeAttentionFactor(const RopeConfig& rope) {
  if (rope.scaling != RopeScaling::kYarn) return 1;
  if (rope.attention_factor > 0) return rope.attention_factor;
  const auto scale = [&](double mscale) {
    return rope.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(rope.factor) + 1.0;
  };
  if (rope.mscale > 0 && rope.mscale_all_dim > 0) {
    return scale(rope.mscale) / scale(rope.mscale_all_dim);
  }
  return scale(1);
}

void RopeTable::Prepare(const ModelConfig& config, int64_t positions) {
  // Dynamic scaling depends on the longest position of the micro-batch, and on nothing before it.
  const bool dynamic = config.rope.scaling == RopeScaling::kDynamic;
  if (!dynamic && cos_.defined() && cos_.size(0) >= positions) return;
  const Tensor angles = torch::outer(torch::arange(positions, torch::kInt64).to(torch::kFloat32),
                                     RopeFrequencies(config, positions));
  const double factor = RopeAttentionFactor(config.rope);
  cos_ = (angles.cos() * factor).contiguous();
  sin_ = (angles.sin() * factor).contiguous();
}

}  // namespace everstep
