#include <algorithm>

#include "common/json.h"
#include "worker/checkpoint/safetensors.h"

namespace everstep {
namespace {

// The order of the safetensors library: alignment (item size) falling, then name.
void SortForFile(std::vector<TensorView>& tensors) {
  std::ranges::sort(tensors, [](const TensorView& a, const TensorView& b) {
    const size_t a_bytes = DTypeBytes(a.dtype);
    const size_t b_bytes = DTypeBytes(b.dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
  });
}

// Padded with spaces so that the data begins at a multiple of 8 bytes.
std::string HeaderOf(const std::vector<TensorView>& tensors, const SafetensorsMetadata& metadata) {
  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    header[tensor.name] = {{"dtype", DTypeName(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  std::string text = DumpJson(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

// Fails for what would make a file that no reader accepts.
Status CheckTensors(const std::string& path, const std::vector<TensorView>& sorted) {
  std::vector<std::string_view> names;
  for (const TensorView& tensor : sorted) {
    names.push_back(tensor.name);
    uint64_t bytes = DTypeBytes(tensor.dtype);
    for (int64_t dimension : tensor.shape) {
      if (dimension < 0 ||
          __builtin_mul_overflow(bytes, static_cast<uint64_t>(dimension), &bytes)) {
        return Internal(path + ": tensor '" + tensor.name +
                        "' has no valid shape: " + ShapeText(tensor.shape));
      }
    }
    if (bytes != tensor.data.size()) {
      return Internal(path + ": tensor '" + tensor.name + "' has " +
                      std::to_string(tensor.data.size()) + " bytes, its shape " +
                      ShapeText(tensor.shape) + " needs " + std::to_string(bytes));
    }
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) {
    return Internal(path + ": two tensors are named '" + std::string(*twice) + "'");
  }
  return {};
}

}  // namespace

Status WriteSafetensors(FileWriter& file, const std::string& path, std::vector<TensorView> tensors,
                        const SafetensorsMetadata& metadata) {
  SortForFile(tensors);
  RETURN_IF_ERROR(CheckTensors(path, tensors));
  const std::string header = HeaderOf(tensors, metadata);
  const uint64_t length = header.size();
  RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(&length, 1))));
  RETURN_IF_ERROR(file.Write(header));
  for (const TensorView& tensor : tensors) RETURN_IF_ERROR(file.Write(tensor.data));
  return file.Finish();
}

Status WriteSafetensors(const std::string& path, std::vector<TensorView> tensors,
                        const SafetensorsMetadata& metadata) {
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(path));
  return WriteSafetensors(file, path, std::move(tensors), metadata);
}

uint64_t SafetensorsBytes(std::vector<TensorView> tensors, const SafetensorsMetadata& metadata) {
  SortForFile(tensors);
  uint64_t bytes = sizeof(uint64_t) + HeaderOf(tensors, metadata).size();
  for (const TensorView& tensor : tensors) bytes += tensor.data.size();
  return bytes;
}

}  // namespace everstep
