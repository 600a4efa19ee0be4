#include "worker/model/mapped_tensor.h"

#include "common/check.h"

namespace everstep {

using torch::Tensor;

Result<Tensor> MappedTensor(const TensorView& view, const std::string& where) {
  const auto map = [&](torch::ScalarType type) {
    // Nobody writes through it: frozen weights are read only, trained ones are copied.
    return torch::from_blob(const_cast<std::byte*>(view.data.data()), view.shape,
                            torch::TensorOptions().dtype(type));
  };
  switch (view.dtype) {
    case DType::kFloat32:
      return map(torch::kFloat32);
    case DType::kBFloat16:
      return map(torch::kBFloat16);
    case DType::kFloat16:
      return map(torch::kFloat16).to(torch::kFloat32);
    case DType::kFloat64:
      return map(torch::kFloat64).to(torch::kFloat32);
    default:
      return InvalidArgument(where + "has dtype " + std::string(DTypeName(view.dtype)) +
                             ": quantized weights are not supported, use F32, F16 or BF16");
  }
}

TensorView ViewOf(const std::string& name, const Tensor& tensor) {
  EVERSTEP_CHECK(tensor.is_contiguous());
  return {name,
          tensor.scalar_type() == torch::kBFloat16 ? DType::kBFloat16 : DType::kFloat32,
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

}  // namespace everstep
