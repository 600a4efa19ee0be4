// The elementwise inner loops of the decoder on raw rows, written so that the compiler vectorises
// them (and clones them for AVX2 and AVX-512). No threads, no allocation; torch-free.
//
// A row's result depends on the row alone, so callers may split rows over threads as they like.
// bf16 values are passed as their 16 bits.
#ifndef EVERSTEP_WORKER_KERNELS_ROW_KERNELS_H_
#define EVERSTEP_WORKER_KERNELS_ROW_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace everstep::rows {

using BFloat16Bits = uint16_t;

void ToFloat(const BFloat16Bits* in, float* out, size_t size);
void ToFloat(const float* in, float* out, size_t size);
void FromFloat(const float* in, BFloat16Bits* out, size_t size);
void FromFloat(const float* in, float* out, size_t size);

// y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps) (Zhang & Sennrich, RMSNorm, eq. 4).
// Returns rstd. With `round_normalized` the product x * rstd is rounded to bf16 before it is
// multiplied with the weight, as transformers does for bf16 activations.
float RmsNorm(const float* x, const float* weight, float eps, bool round_normalized, float* y,
              size_t size);
// Adds rstd * (w * dy - x * rstd^2 * mean(w * dy * x)) to dx, and dy * x * rstd to
// `weight_gradient` unless that is null.
void RmsNormBackward(const float* dy, const float* x, const float* weight, float rstd, float* dx,
                     float* weight_gradient, size_t size);

// y = silu(gate) * up (Shazeer, GLU Variants, SwiGLU).
void SwiGlu(const float* gate, const float* up, float* y, size_t size);
// From dy: d_gate and d_up, which may be gate and up.
void SwiGluBackward(const float* dy, const float* gate, const float* up, float* d_gate, float* d_up,
                    size_t size);

// out = a + b (out may be either) and to += from.
void Add(const float* a, const float* b, float* out, size_t size);
void AddTo(const float* from, float* to, size_t size);

// Rotates the halves of one head's vector (Hugging Face's layout: pairs are i and i + half).
// `sign` -1 rotates back. y may be x.
void Rope(const float* x, const float* cos, const float* sin, float sign, float* y, size_t half);

float Dot(const float* a, const float* b, size_t size);
// Replaces scores by their softmax; returns the logarithm of the sum of their exponentials.
float Softmax(float* scores, size_t size);
// From scores and the gradient of their softmax (`d_scores`, in place): the softmax itself
// (`scores`, in place) and scale * p * (d - mean), where mean is the sum of p * d.
void SoftmaxBackward(float* scores, float* d_scores, float log_sum, float mean, float scale,
                     size_t size);

// Natural logarithm of the sum of exponentials of `logits`, computed stably.
float LogSumExp(const float* logits, size_t size);
float Sum(const float* values, size_t size);
// out = weight * (exp(logits - log_sum) - floor): the gradient of a (smoothed) cross entropy before
// its target is subtracted.
void SoftmaxGradient(const float* logits, float log_sum, float weight, float floor, float* out,
                     size_t size);

}  // namespace everstep::rows

#endif  // EVERSTEP_WORKER_KERNELS_ROW_KERNELS_H_
