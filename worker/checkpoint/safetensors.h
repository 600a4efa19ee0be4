// The safetensors format: an 8-byte little-endian header length, a JSON header {name: {dtype,
// shape, data_offsets}}, and the tensors' bytes. Readers map the file and check all of it on
// opening; nothing that a file says is trusted before.
#ifndef EVERSTEP_WORKER_CHECKPOINT_SAFETENSORS_H_
#define EVERSTEP_WORKER_CHECKPOINT_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "worker/checkpoint/file_writer.h"

namespace everstep {

enum class DType {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool
};

std::string_view DTypeName(DType dtype);  // "F32", "BF16", ... as in the file
std::optional<DType> ParseDType(std::string_view name);
size_t DTypeBytes(DType dtype);

// A tensor somewhere else's memory. Row-major.
struct TensorView {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// "[2048, 64]"
std::string ShapeText(std::span<const int64_t> shape);

// One file, mapped read-only as long as the object lives; the views point into the mapping.
class SafetensorsFile {
 public:
  // kNotFound without the file; kDataLoss, in one line that names file and tensor, for: a
  // truncated file (with the missing bytes), a malformed header, an unknown dtype, a range that
  // does not fit shape and dtype or overlaps another one, bytes that belong to no tensor.
  static Result<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorView>& tensors() const { return tensors_; }  // in file order
  const TensorView* Find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct Mapping;
  SafetensorsFile() = default;
  Status ParseHeader(std::string_view header, std::span<const std::byte> data);

  std::string path_;
  std::shared_ptr<const Mapping> mapping_;  // shared by copies of this object
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

// The weights of a model directory: `stem`.safetensors, or the shards that
// `stem`.safetensors.index.json names.
class SafetensorsSet {
 public:
  // kNotFound names what was looked for and, when only pytorch_model.bin is there, the remedy.
  static Result<SafetensorsSet> Open(const std::string& directory,
                                     const std::string& stem = "model");

  const TensorView* Find(std::string_view name) const;
  std::vector<std::string> Names() const;
  // File that holds `name`, for messages.
  std::string PathOf(std::string_view name) const;

 private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::pair<size_t, const TensorView*>, std::less<>> by_name_;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// Writes and syncs `path`. The same input gives the same bytes: tensors are ordered by falling
// item size, then by name, as the safetensors library does. kResourceExhausted when the disk is
// full, kInternal for two tensors of one name or a wrong shape; no file is left then.
Status WriteSafetensors(const std::string& path, std::vector<TensorView> tensors,
                        const SafetensorsMetadata& metadata);
// The same into a file just created (`path` is its name in messages), and finishes it.
Status WriteSafetensors(FileWriter& file, const std::string& path, std::vector<TensorView> tensors,
                        const SafetensorsMetadata& metadata);
// Size of the file that it would write.
uint64_t SafetensorsBytes(std::vector<TensorView> tensors, const SafetensorsMetadata& metadata);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_SAFETENSORS_H_
