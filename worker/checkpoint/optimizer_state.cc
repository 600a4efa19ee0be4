#include "worker/checkpoint/optimizer_state.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "common/check.h"

namespace everstep {
namespace {

constexpr std::array<std::string_view, 3> kKinds{"parameter/", "exp_avg/", "exp_avg_sq/"};

template <typename Vectors>
auto InKindOrder(const Vectors& vectors) {
  return std::array{vectors.parameters, vectors.first_moment, vectors.second_moment};
}

tl::unexpected<Error> Unfit(const SafetensorsFile& file, const std::string& what) {
  return MakeError(ErrorCode::kFailedPrecondition,
                   file.path() + ": " + what +
                       ": the checkpoint is of a run with other trained parameters: resume with "
                       "the same model and finetuning settings, or choose another output_dir");
}

Status CheckTensor(const SafetensorsFile& file, const std::string& name, const LayoutEntry& entry) {
  const TensorView* tensor = file.Find(name);
  if (tensor == nullptr) return Unfit(file, "tensor '" + name + "' is missing");
  if (tensor->dtype != DType::kFloat32 || tensor->shape != entry.shape) {
    return Unfit(file, "tensor '" + name + "' is " + ShapeText(tensor->shape) + " " +
                           std::string(DTypeName(tensor->dtype)) + " and not " +
                           ShapeText(entry.shape) + " F32");
  }
  return {};
}

// Every tensor of the file belongs to an entry (of whatever kind).
Status CheckNothingElse(const SafetensorsFile& file, const FlatLayout& layout) {
  std::vector<std::string_view> known;
  for (const LayoutEntry& entry : layout.entries) known.push_back(entry.name);
  std::ranges::sort(known);
  for (const TensorView& tensor : file.tensors()) {
    const std::string_view name = tensor.name;
    const auto kind = std::ranges::find_if(kKinds, [&](auto k) { return name.starts_with(k); });
    if (kind == kKinds.end() || !std::ranges::binary_search(known, name.substr(kind->size()))) {
      return Unfit(file, "tensor '" + tensor.name + "' belongs to no parameter of this run");
    }
  }
  return {};
}

void Fill(const SafetensorsFile& file, const FlatLayout& layout, std::string_view kind,
          std::span<float> vector) {
  std::ranges::fill(vector, 0.0f);
  for (const LayoutEntry& entry : layout.entries) {
    const TensorView* tensor = file.Find(std::string(kind) + entry.name);
    if (tensor->data.empty()) continue;
    // The file need not be aligned: bytes, not floats.
    std::memcpy(vector.data() + entry.offset, tensor->data.data(), tensor->data.size());
  }
}

}  // namespace

std::vector<TensorView> OptimizerTensors(const FlatLayout& layout,
                                         const OptimizerVectors& vectors) {
  std::vector<TensorView> tensors;
  const auto parts = InKindOrder(vectors);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    EVERSTEP_CHECK(parts[i].size() == static_cast<size_t>(layout.size));
    for (const LayoutEntry& entry : layout.entries) {
      const auto values =
          parts[i].subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.numel));
      tensors.push_back({std::string(kKinds[i]) + entry.name, DType::kFloat32, entry.shape,
                         std::as_bytes(values)});
    }
  }
  return tensors;
}

Status ReadOptimizerTensors(const SafetensorsFile& file, const FlatLayout& layout,
                            const MutableOptimizerVectors& vectors) {
  const auto parts = InKindOrder(vectors);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    EVERSTEP_CHECK(parts[i].size() == static_cast<size_t>(layout.size));
    for (const LayoutEntry& entry : layout.entries) {
      RETURN_IF_ERROR(CheckTensor(file, std::string(kKinds[i]) + entry.name, entry));
    }
  }
  RETURN_IF_ERROR(CheckNothingElse(file, layout));
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].empty()) Fill(file, layout, kKinds[i], parts[i]);
  }
  return {};
}

Json LayoutJson(const FlatLayout& layout) {
  Json json = Json::array();
  for (const LayoutEntry& entry : layout.entries) {
    json.push_back(Json{{"name", entry.name}, {"shape", entry.shape}});
  }
  return json;
}

}  // namespace everstep
