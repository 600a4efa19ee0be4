// The differentiable building blocks of the decoder: each one forward and backward pass written
// for speed, with weight gradients added straight into the share's flat gradient vector.
//
// Activations are [tokens, features] unless said otherwise, in the compute type (fp32 or bf16);
// the residual stream may be fp32 beside bf16 activations. A result is a function of the inputs,
// the shapes and the number of threads: nothing depends on what ran before.
#ifndef EVERSTEP_WORKER_MODEL_FUNCTIONS_H_
#define EVERSTEP_WORKER_MODEL_FUNCTIONS_H_

#include <torch/torch.h>

#include "worker/kernels/weight.h"

namespace everstep {

// x [.., n], weight [n] -> the normalised x in `type`. With `input_gradient` off the backward pass
// computes the weight's gradient only.
torch::Tensor RmsNorm(const torch::Tensor& x, Weight& weight, double epsilon,
                      torch::ScalarType type, bool input_gradient = true);

// x [tokens, in] -> x W^T + b, [tokens, out].
torch::Tensor Linear(const torch::Tensor& x, Weight& weight, Weight& bias,
                     bool input_gradient = true);

// As Linear, plus the low-rank side path (Hu et al., LoRA, eq. 3): + scaling (x A^T) B^T. `side` is
// x after dropout, or x itself. lora_a [r, in], lora_b [out, r]; both are trainable.
torch::Tensor LoraLinear(const torch::Tensor& x, const torch::Tensor& side, Weight& weight,
                         Weight& bias, Weight& lora_a, Weight& lora_b, double scaling,
                         bool input_gradient = true);

// x [batch, seq, heads * head_dim] -> rotated, [batch, heads, seq, head_dim]. cos and sin
// [positions, head_dim / 2] fp32; positions [batch, seq] int64.
torch::Tensor Rope(const torch::Tensor& x, int64_t head_dim, const torch::Tensor& cos,
                   const torch::Tensor& sin, const torch::Tensor& positions);

// silu(gate) * up.
torch::Tensor SwiGlu(const torch::Tensor& gate, const torch::Tensor& up);

// ids [tokens] int64 -> rows of `weight` [tokens, hidden].
torch::Tensor Embedding(const torch::Tensor& ids, Weight& weight);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_FUNCTIONS_H_
