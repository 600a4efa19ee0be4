// Tensors of safetensors files as LibTorch's, and back.
#ifndef EVERSTEP_WORKER_MODEL_MAPPED_TENSOR_H_
#define EVERSTEP_WORKER_MODEL_MAPPED_TENSOR_H_

#include <torch/torch.h>

#include <string>

#include "common/result.h"
#include "worker/checkpoint/safetensors.h"

namespace everstep {

// fp32 and bf16 tensors are views of the mapped file; fp16 and fp64 ones are fp32 copies. Other
// types are an error (kInvalidArgument; `where` starts its message).
Result<torch::Tensor> MappedTensor(const TensorView& view, const std::string& where);

// The bytes of a contiguous fp32 or bf16 tensor.
TensorView ViewOf(const std::string& name, const torch::Tensor& tensor);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_MAPPED_TENSOR_H_
