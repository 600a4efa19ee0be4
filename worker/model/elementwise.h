// Elementwise steps of a decoder layer on whole matrices, on all threads. fp32 or bf16 each.
#ifndef EVERSTEP_WORKER_MODEL_ELEMENTWISE_H_
#define EVERSTEP_WORKER_MODEL_ELEMENTWISE_H_

#include <torch/torch.h>

#include "worker/model/pass_context.h"

namespace everstep {

// out = a + b; a and out fp32, b of any type. out may be b.
void AddRows(const torch::Tensor& a, const torch::Tensor& b, torch::Tensor& out);

// y = silu(gate) * up.
void SwiGlu(const torch::Tensor& gate, const torch::Tensor& up, torch::Tensor& y);
// From the gradient of y: those of gate and up, which take the places of gate and up.
void SwiGluBackward(const torch::Tensor& dy, torch::Tensor& gate, torch::Tensor& up);

// Rotates every head of every token by its position's angles: x [tokens, heads * head_dim] of any
// type to y, fp32; `inverse` rotates back. x may be y.
void Rotate(const torch::Tensor& x, int64_t head_dim, bool inverse, const PassContext& pass,
            torch::Tensor& y);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_ELEMENTWISE_H_
