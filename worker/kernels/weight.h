// One parameter tensor of the model: its master values, the copy that is computed with, and where
// its gradient is added.
#ifndef EVERSTEP_WORKER_KERNELS_WEIGHT_H_
#define EVERSTEP_WORKER_KERNELS_WEIGHT_H_

#include <torch/torch.h>

#include <string>

namespace everstep {

struct Weight {
  std::string name;        // as in the model's own safetensors
  torch::Tensor value;     // trainable: fp32, a view into the flat vector; frozen: as it is used
  torch::Tensor compute;   // what matrix products use: `value`, or its bf16 copy
  torch::Tensor gradient;  // fp32 view of the share's flat gradient during a pass; else undefined
  bool trainable = false;

  bool defined() const { return value.defined(); }
  // To be called when `value` has changed. bf16 copies keep their memory.
  void Refresh(torch::ScalarType compute_type);
};

// gradient += update, with the sum taken in fp32.
void AddGradient(Weight& weight, const torch::Tensor& update);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_KERNELS_WEIGHT_H_
