#include "worker/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/files.h"
#include "common/json.h"

namespace everstep {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100u << 20;
constexpr size_t kLengthBytes = 8;

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  size_t bytes;
};
constexpr DTypeInfo kDTypes[] = {{DType::kFloat64, "F64", 8}, {DType::kFloat32, "F32", 4},
                                 {DType::kFloat16, "F16", 2}, {DType::kBFloat16, "BF16", 2},
                                 {DType::kInt64, "I64", 8},   {DType::kInt32, "I32", 4},
                                 {DType::kInt16, "I16", 2},   {DType::kInt8, "I8", 1},
                                 {DType::kUInt8, "U8", 1},    {DType::kBool, "BOOL", 1}};

// Number of elements, or nothing when a dimension is negative or the product overflows.
std::optional<uint64_t> ElementCount(std::span<const int64_t> shape) {
  uint64_t count = 1;
  for (int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(count, static_cast<uint64_t>(dimension), &count)) {
      return std::nullopt;
    }
  }
  return count;
}

}  // namespace

std::string_view DTypeName(DType dtype) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype == dtype) return info.name;
  }
  return "?";
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

size_t DTypeBytes(DType dtype) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype == dtype) return info.bytes;
  }
  return 0;
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (int64_t dimension : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dimension);
  }
  return text + "]";
}

// ---- One file ----------------------------------------------------------------------------------

struct SafetensorsFile::Mapping {
  const std::byte* data = nullptr;
  size_t size = 0;

  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data != nullptr) munmap(const_cast<std::byte*>(data), size);
  }
};

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return MakeError(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kFailedPrecondition,
                     path + ": cannot open: " + ErrnoText(errno));
  }
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return InvalidArgument(path + ": is no regular file: name a safetensors file");
  }
  auto mapping = std::make_shared<Mapping>();
  mapping->size = static_cast<size_t>(info.st_size);
  if (mapping->size < kLengthBytes) {
    close(fd);
    return DataLoss(path + ": is no safetensors file: " + std::to_string(mapping->size) +
                    " bytes are less than a header: download it again");
  }
  void* mapped = mmap(nullptr, mapping->size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (mapped == MAP_FAILED) return Internal(path + ": cannot map: " + ErrnoText(error));
  mapping->data = static_cast<const std::byte*>(mapped);

  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, mapping->data, kLengthBytes);
  if (header_bytes > kMaxHeaderBytes) {
    return DataLoss(path + ": is no safetensors file: it announces a header of " +
                    std::to_string(header_bytes) + " bytes");
  }
  if (kLengthBytes + header_bytes > mapping->size) {
    return DataLoss(path + ": truncated in its header: " +
                    std::to_string(kLengthBytes + header_bytes - mapping->size) +
                    " bytes are missing: download it again");
  }
  SafetensorsFile file;
  file.path_ = path;
  file.mapping_ = mapping;
  const std::string_view header(reinterpret_cast<const char*>(mapping->data) + kLengthBytes,
                                header_bytes);
  const size_t begin = kLengthBytes + header_bytes;
  RETURN_IF_ERROR(file.ParseHeader(header, {mapping->data + begin, mapping->size - begin}));
  return file;
}

namespace {

// One entry of the header, checked against dtype and shape, with its range in the data section.
struct Entry {
  TensorView view;
  uint64_t begin = 0;
  uint64_t end = 0;
};

Result<Entry> ParseEntry(const std::string& where, const std::string& name, const Json& json) {
  Entry entry;
  entry.view.name = name;
  const std::string dtype_name = JsonValue<std::string>(json, "dtype", "");
  const auto dtype = ParseDType(dtype_name);
  if (!dtype)
    return DataLoss(where + "unknown dtype '" + dtype_name +
                    "': convert the weights to F32 or BF16");
  entry.view.dtype = *dtype;
  const auto shape = json.find("shape");
  const auto offsets = json.find("data_offsets");
  if (shape == json.end() || !shape->is_array() || offsets == json.end() || !offsets->is_array() ||
      offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    return DataLoss(where + "malformed shape or data_offsets");
  }
  for (const Json& dimension : *shape) {
    if (!dimension.is_number_unsigned()) return DataLoss(where + "malformed shape");
    entry.view.shape.push_back(dimension.get<int64_t>());
  }
  entry.begin = (*offsets)[0].get<uint64_t>();
  entry.end = (*offsets)[1].get<uint64_t>();
  const auto count = ElementCount(entry.view.shape);
  uint64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, DTypeBytes(*dtype), &bytes) ||
      entry.end < entry.begin || entry.end - entry.begin != bytes) {
    return DataLoss(where + "data_offsets do not fit shape " + ShapeText(entry.view.shape) + " " +
                    std::string(DTypeName(*dtype)));
  }
  return entry;
}

// Every byte of the data belongs to exactly one tensor: no overlap, and no gap in which something
// could hide. `entries` are in file order.
Status CheckCoverage(const std::string& path, const std::vector<Entry>& entries, uint64_t size) {
  uint64_t end = 0;
  std::string before = "the header";
  for (const Entry& entry : entries) {
    const std::string name = "tensor '" + entry.view.name + "'";
    if (entry.begin < end) {
      return DataLoss(path + ": " + name + " overlaps " + before +
                      ": the file is corrupt: download it again");
    }
    if (entry.begin > end) {
      return DataLoss(path + ": " + std::to_string(entry.begin - end) + " bytes between " + before +
                      " and " + name +
                      " belong to no tensor: the file is corrupt: download it again");
    }
    if (entry.end > size) {
      return DataLoss(path + ": truncated in " + name + ": " +
                      std::to_string(entries.back().end - size) +
                      " bytes are missing: download it again");
    }
    end = entry.end;
    before = name;
  }
  if (end != size) {
    return DataLoss(path + ": " + std::to_string(size - end) + " bytes after " + before +
                    " belong to no tensor: the file is corrupt: download it again");
  }
  return {};
}

}  // namespace

Status SafetensorsFile::ParseHeader(std::string_view header, std::span<const std::byte> data) {
  auto json = ParseJson(header, path_);
  if (!json)
    return DataLoss(path_ + ": the header is not JSON: the file is corrupt: download it again");
  if (!json->is_object()) return DataLoss(path_ + ": the header is not a JSON object");
  std::vector<Entry> entries;
  for (const auto& [name, value] : json->items()) {
    if (name == "__metadata__") {
      for (const auto& [key, text] : value.items()) {
        if (text.is_string()) metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    const std::string where = path_ + ": tensor '" + name + "': ";
    ASSIGN_OR_RETURN(Entry entry, ParseEntry(where, name, value));
    entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  RETURN_IF_ERROR(CheckCoverage(path_, entries, data.size()));
  for (Entry& entry : entries) {
    entry.view.data = data.subspan(entry.begin, entry.end - entry.begin);
    by_name_[entry.view.name] = tensors_.size();
    tensors_.push_back(std::move(entry.view));
  }
  return {};
}

const TensorView* SafetensorsFile::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

// ---- A directory -------------------------------------------------------------------------------

namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> NoWeights(const fs::path& directory, const std::string& stem) {
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!fs::exists(directory / pickle)) continue;
    return NotFound(directory.string() + ": the weights are in " + pickle +
                    ", a format that can run code when it is read, and is not read here: convert "
                    "them to safetensors (load the model with transformers, save_pretrained)");
  }
  return NotFound(directory.string() + ": has neither " + stem + ".safetensors nor " + stem +
                  ".safetensors.index.json: is it a model directory?");
}

// Tensor name -> file name, from the index.
Result<std::map<std::string, std::string>> ReadWeightMap(const std::string& index) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(index));
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, index));
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty()) {
    return DataLoss(index + ": has no weight_map: download it again");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos) {
      return DataLoss(index + ": weight_map['" + tensor + "'] is no file name beside the index");
    }
    files[tensor] = file.get<std::string>();
  }
  return files;
}

}  // namespace

Result<SafetensorsSet> SafetensorsSet::Open(const std::string& directory, const std::string& stem) {
  SafetensorsSet set;
  const fs::path single = fs::path(directory) / (stem + ".safetensors");
  const std::string index = single.string() + ".index.json";
  if (fs::exists(single)) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(single));
    set.files_.push_back(std::move(file));
    for (const TensorView& tensor : set.files_[0].tensors())
      set.by_name_[tensor.name] = {0, &tensor};
    return set;
  }
  if (!fs::exists(index)) return NoWeights(directory, stem);
  ASSIGN_OR_RETURN(const auto weight_map, ReadWeightMap(index));
  std::map<std::string, size_t> numbers;
  for (const auto& [tensor, name] : weight_map) numbers[name] = 0;
  for (auto& [name, number] : numbers) {
    auto file = SafetensorsFile::Open(fs::path(directory) / name);
    if (!file && file.error().code == ErrorCode::kNotFound) {
      return NotFound((fs::path(directory) / name).string() +
                      ": this shard, which the index names, is missing: download it again");
    }
    if (!file) return tl::unexpected(std::move(file).error());
    number = set.files_.size();
    set.files_.push_back(std::move(*file));
  }
  for (const auto& [tensor, name] : weight_map) {
    const size_t number = numbers[name];
    const TensorView* view = set.files_[number].Find(tensor);
    if (view == nullptr) {
      return DataLoss(set.files_[number].path() + ": tensor '" + tensor +
                      "' is missing, the index says it is in this file: download it again");
    }
    set.by_name_[tensor] = {number, view};
  }
  return set;
}

const TensorView* SafetensorsSet::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second.second;
}

std::vector<std::string> SafetensorsSet::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : by_name_) names.push_back(name);
  return names;
}

std::string SafetensorsSet::PathOf(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? files_.front().path() : files_[found->second.first].path();
}

}  // namespace everstep
