// A linear layer of the decoder with its bias and its low-rank side path.
#ifndef EVERSTEP_WORKER_MODEL_PROJECTION_H_
#define EVERSTEP_WORKER_MODEL_PROJECTION_H_

#include <torch/torch.h>

#include <cstdint>
#include <memory>

#include "worker/kernels/weight.h"
#include "worker/model/pass_context.h"

namespace everstep {

// y += scaling * B A dropout(x) (Hu et al., LoRA, eq. 3).
struct LoraPath {
  Weight a;  // [r, in]
  Weight b;  // [out, r]
  double scaling = 1;
  double dropout = 0;
  // DoRA only (Liu et al., DoRA, eq. 5): row i of the whole product is scaled with
  // magnitude[i] / ||(W + scaling B A)[i]||. The norm counts as a constant in the gradient.
  Weight magnitude;        // [out]
  torch::Tensor row_norm;  // [out]; of the present weights
};

struct Projection {
  Weight weight;  // [out, in]
  Weight bias;    // [out], or undefined
  std::unique_ptr<LoraPath> lora;

  // Brings what is derived from the weights up to date.
  void Refresh(torch::ScalarType compute_type);
  bool HasTrainable() const {
    return lora != nullptr || weight.trainable || (bias.defined() && bias.trainable);
  }
  // y = W x + bias (and the side path). x [tokens, in], y [tokens, out], compute type. `place`
  // names the projection for random draws.
  void Forward(const torch::Tensor& x, torch::Tensor& y, const PassContext& pass,
               int64_t place) const;

  // Adds the gradients of what is trained to its places, from x and the gradient of y. The gradient
  // of x goes to `dx` unless that is null ([tokens, in], fp32 or compute type), added to what is
  // there with `accumulate`.
  void Backward(const torch::Tensor& x, const torch::Tensor& dy, torch::Tensor* dx, bool accumulate,
                const PassContext& pass, int64_t place);

 private:
  void SidePath(const torch::Tensor& x, torch::Tensor& y, const PassContext& pass,
                int64_t place) const;
  void SidePathBackward(const torch::Tensor& x, const torch::Tensor& dy, torch::Tensor* dx,
                        const PassContext& pass, int64_t place);
  torch::Tensor ScaleRows(const torch::Tensor& x, const torch::Tensor& dy, const PassContext& pass,
                          int64_t place);
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_PROJECTION_H_
