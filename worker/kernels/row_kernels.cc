#include "worker/kernels/row_kernels.h"

#include <bit>
#include <cmath>

// The best version for the processor is chosen when the program is loaded. Sanitizers' start-up
// does not get along with that.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VECTOR_CLONES
#else
#define VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

namespace everstep::rows {
namespace {

[[gnu::always_inline]] inline float Widen(BFloat16Bits bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest, ties to even. NaN stays NaN.
[[gnu::always_inline]] inline BFloat16Bits Narrow(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<BFloat16Bits>((is_nan ? (bits | 0x400000u) : rounded) >> 16);
}

// exp(x) within 2 ulp for x <= 88: x = n ln2 + r, a degree-6 polynomial for exp(r), and n added to
// the exponent. A library call would keep the loops from being vectorised.
[[gnu::always_inline]] inline float Exp(float x) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const uint32_t exponent = static_cast<uint32_t>(static_cast<int32_t>(n)) << 23;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + exponent);
}

[[gnu::always_inline]] inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

// Sixteen running sums: the order of additions is fixed, and the loop can be vectorised without
// leave to reorder it.
constexpr size_t kLanes = 16;

[[gnu::always_inline]] inline float AddLanes(const float* lanes) {
  float total = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) total += lanes[lane];
  return total;
}

}  // namespace

VECTOR_CLONES void ToFloat(const BFloat16Bits* __restrict in, float* __restrict out, size_t size) {
  for (size_t i = 0; i < size; ++i) out[i] = Widen(in[i]);
}

VECTOR_CLONES void ToFloat(const float* __restrict in, float* __restrict out, size_t size) {
  for (size_t i = 0; i < size; ++i) out[i] = in[i];
}

VECTOR_CLONES void FromFloat(const float* __restrict in, BFloat16Bits* __restrict out,
                             size_t size) {
  for (size_t i = 0; i < size; ++i) out[i] = Narrow(in[i]);
}

VECTOR_CLONES void FromFloat(const float* __restrict in, float* __restrict out, size_t size) {
  for (size_t i = 0; i < size; ++i) out[i] = in[i];
}

VECTOR_CLONES float RmsNorm(const float* __restrict x, const float* __restrict weight, float eps,
                            bool round_normalized, float* __restrict y, size_t size) {
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  }
  for (; i < size; ++i) lanes[0] += x[i] * x[i];
  const float rstd = 1.0f / std::sqrt(AddLanes(lanes) / static_cast<float>(size) + eps);
  if (round_normalized) {
    for (size_t j = 0; j < size; ++j) y[j] = Widen(Narrow(x[j] * rstd)) * weight[j];
  } else {
    for (size_t j = 0; j < size; ++j) y[j] = x[j] * rstd * weight[j];
  }
  return rstd;
}

VECTOR_CLONES void RmsNormBackward(const float* __restrict dy, const float* __restrict x,
                                   const float* __restrict weight, float rstd, float* __restrict dx,
                                   float* __restrict weight_gradient, size_t size) {
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += dy[i + lane] * weight[i + lane] * x[i + lane];
    }
  }
  for (; i < size; ++i) lanes[0] += dy[i] * weight[i] * x[i];
  const float scale = AddLanes(lanes) / static_cast<float>(size) * rstd * rstd;
  for (size_t j = 0; j < size; ++j) dx[j] += rstd * (dy[j] * weight[j] - x[j] * scale);
  if (weight_gradient == nullptr) return;
  for (size_t j = 0; j < size; ++j) weight_gradient[j] += dy[j] * x[j] * rstd;
}

VECTOR_CLONES void SwiGlu(const float* __restrict gate, const float* __restrict up,
                          float* __restrict y, size_t size) {
  for (size_t i = 0; i < size; ++i) y[i] = gate[i] * Sigmoid(gate[i]) * up[i];
}

VECTOR_CLONES void SwiGluBackward(const float* __restrict dy, const float* gate, const float* up,
                                  float* d_gate, float* d_up, size_t size) {
  // d_gate may be gate, and d_up may be up.
#pragma GCC ivdep
  for (size_t i = 0; i < size; ++i) {
    const float g = gate[i], u = up[i];
    const float sigmoid = Sigmoid(g);
    const float silu = g * sigmoid;
    d_up[i] = dy[i] * silu;
    d_gate[i] = dy[i] * u * (sigmoid + silu * (1.0f - sigmoid));
  }
}

VECTOR_CLONES void Rope(const float* x, const float* __restrict cos, const float* __restrict sin,
                        float sign, float* y, size_t half) {
  // Every element is read before it is written, also where x is y; elements do not depend on each
  // other.
#pragma GCC ivdep
  for (size_t i = 0; i < half; ++i) {
    const float s = sign * sin[i];
    const float a = x[i], b = x[i + half];
    y[i] = a * cos[i] - b * s;
    y[i + half] = b * cos[i] + a * s;
  }
}

VECTOR_CLONES void Add(const float* a, const float* b, float* out, size_t size) {
#pragma GCC ivdep
  for (size_t i = 0; i < size; ++i) out[i] = a[i] + b[i];
}

VECTOR_CLONES void AddTo(const float* __restrict from, float* __restrict to, size_t size) {
  for (size_t i = 0; i < size; ++i) to[i] += from[i];
}

VECTOR_CLONES float Dot(const float* __restrict a, const float* __restrict b, size_t size) {
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < size; ++i) lanes[0] += a[i] * b[i];
  return AddLanes(lanes);
}

namespace {

[[gnu::always_inline]] inline float Maximum(const float* values, size_t size) {
  float maxima[kLanes];
  for (float& lane : maxima) lane = values[0];
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      maxima[lane] = values[i + lane] > maxima[lane] ? values[i + lane] : maxima[lane];
    }
  }
  float maximum = maxima[0];
  for (float lane : maxima) maximum = lane > maximum ? lane : maximum;
  for (; i < size; ++i) maximum = values[i] > maximum ? values[i] : maximum;
  return maximum;
}

}  // namespace

VECTOR_CLONES float Softmax(float* __restrict scores, size_t size) {
  const float maximum = Maximum(scores, size);
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float e = Exp(scores[i + lane] - maximum);
      scores[i + lane] = e;
      lanes[lane] += e;
    }
  }
  for (; i < size; ++i) {
    scores[i] = Exp(scores[i] - maximum);
    lanes[0] += scores[i];
  }
  const float sum = AddLanes(lanes);
  const float inverse = 1.0f / sum;
  for (size_t j = 0; j < size; ++j) scores[j] *= inverse;
  return maximum + std::log(sum);
}

VECTOR_CLONES void SoftmaxBackward(float* __restrict scores, float* __restrict d_scores,
                                   float log_sum, float mean, float scale, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    const float p = Exp(scores[i] - log_sum);
    scores[i] = p;
    d_scores[i] = scale * p * (d_scores[i] - mean);
  }
}

VECTOR_CLONES float LogSumExp(const float* __restrict logits, size_t size) {
  const float maximum = Maximum(logits, size);
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += Exp(logits[i + lane] - maximum);
  }
  for (; i < size; ++i) lanes[0] += Exp(logits[i] - maximum);
  return maximum + std::log(AddLanes(lanes));
}

VECTOR_CLONES float Sum(const float* __restrict values, size_t size) {
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
  }
  for (; i < size; ++i) lanes[0] += values[i];
  return AddLanes(lanes);
}

VECTOR_CLONES void SoftmaxGradient(const float* __restrict logits, float log_sum, float weight,
                                   float floor, float* __restrict out, size_t size) {
  for (size_t i = 0; i < size; ++i) out[i] = weight * (Exp(logits[i] - log_sum) - floor);
}

}  // namespace everstep::rows
