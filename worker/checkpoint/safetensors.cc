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
  fstat(fd, &info);
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
  if (!dtype) return DataLoss(where + "unknown dtype '" + dtype_name + "'");
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

}  // namespace

Status SafetensorsFile::ParseHeader(std::string_view header, std::span<const std::byte> data) {
  auto json = ParseJson(header, path_);
  if (!json) return DataLoss(path_ + ": the header is not JSON: the file is corrupt");
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
    if (entry.end > data.size()) {
      return DataLoss(
          where + "lies beyond the end of the file: " + std::to_string(entry.end - data.size()) +
          " bytes are missing: the file is truncated, download it again");
    }
    entry.view.data = data.subspan(entry.begin, entry.end - entry.begin);
    entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  for (size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].begin < entries[i - 1].end) {
      return DataLoss(path_ + ": tensor '" + entries[i].view.name + "' overlaps '" +
                      entries[i - 1].view.name + "': the file is corrupt");
    }
  }
  for (Entry& entry : entries) {
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

// Names of the files that make up the set, from the index or the single file.
Result<std::vector<std::string>> FilesOf(const fs::path& directory, const std::string& stem) {
  if (fs::exists(directory / (stem + ".safetensors"))) return std::vector{stem + ".safetensors"};
  const fs::path index = directory / (stem + ".safetensors.index.json");
  if (!fs::exists(index)) {
    if (fs::exists(directory / "pytorch_model.bin") ||
        fs::exists(directory / "pytorch_model.bin.index.json")) {
      return NotFound(directory.string() +
                      ": the weights are in pytorch_model.bin, which can run code when it is read: "
                      "convert them to safetensors");
    }
    return NotFound(directory.string() + ": has neither " + stem + ".safetensors nor " + stem +
                    ".safetensors.index.json: is it a model directory?");
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(index.string()));
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, index.string()));
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) {
    return DataLoss(index.string() + ": has no weight_map");
  }
  std::vector<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) return DataLoss(index.string() + ": weight_map is malformed");
    files.push_back(file.get<std::string>());
  }
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace

Result<SafetensorsSet> SafetensorsSet::Open(const std::string& directory, const std::string& stem) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, FilesOf(directory, stem));
  SafetensorsSet set;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(fs::path(directory) / name));
    set.files_.push_back(std::move(file));
  }
  for (size_t i = 0; i < set.files_.size(); ++i) {
    for (const TensorView& tensor : set.files_[i].tensors()) {
      set.by_name_[tensor.name] = {i, &tensor};
    }
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

// ---- Writing -----------------------------------------------------------------------------------

namespace {

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

Status WriteAll(int fd, const std::string& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), std::min<size_t>(bytes.size(), 64u << 20));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
      return MakeError(full ? ErrorCode::kResourceExhausted : ErrorCode::kFailedPrecondition,
                       path + ": cannot write: " + ErrnoText(errno) + " (" +
                           std::to_string(bytes.size()) + " bytes of it are missing)");
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status WriteContent(int fd, const std::string& path, const std::vector<TensorView>& tensors,
                    const SafetensorsMetadata& metadata) {
  const std::string header = HeaderOf(tensors, metadata);
  const uint64_t length = header.size();
  RETURN_IF_ERROR(WriteAll(fd, path, std::as_bytes(std::span(&length, 1))));
  RETURN_IF_ERROR(WriteAll(fd, path, std::as_bytes(std::span(header))));
  for (const TensorView& tensor : tensors) RETURN_IF_ERROR(WriteAll(fd, path, tensor.data));
  if (fsync(fd) != 0) {
    return MakeError(
        errno == ENOSPC ? ErrorCode::kResourceExhausted : ErrorCode::kFailedPrecondition,
        path + ": cannot sync: " + ErrnoText(errno));
  }
  return {};
}

}  // namespace

Status WriteSafetensors(const std::string& path, std::vector<TensorView> tensors,
                        const SafetensorsMetadata& metadata) {
  std::ranges::sort(tensors, [](const TensorView& a, const TensorView& b) {
    const size_t a_bytes = DTypeBytes(a.dtype);
    const size_t b_bytes = DTypeBytes(b.dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
  });
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    return MakeError(
        errno == ENOSPC ? ErrorCode::kResourceExhausted : ErrorCode::kFailedPrecondition,
        path + ": cannot create: " + ErrnoText(errno));
  }
  Status status = WriteContent(fd, path, tensors, metadata);
  close(fd);
  if (!status) unlink(path.c_str());
  return status;
}

}  // namespace everstep
