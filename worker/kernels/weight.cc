#include "worker/kernels/weight.h"

namespace everstep {

void Weight::Refresh(torch::ScalarType compute_type) {
  if (!value.defined()) return;
  if (value.scalar_type() == compute_type) {
    compute = value;
  } else if (compute.defined() && compute.scalar_type() == compute_type &&
             compute.sizes() == value.sizes()) {
    compute.copy_(value);
  } else {
    compute = value.to(compute_type);
  }
}

void AddGradient(Weight& weight, const torch::Tensor& update) {
  weight.gradient.add_(update.scalar_type() == torch::kFloat32 ? update
                                                               : update.to(torch::kFloat32));
}

}  // namespace everstep
