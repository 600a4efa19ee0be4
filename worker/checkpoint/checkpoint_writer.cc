#include "worker/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "common/files.h"
#include "worker/checkpoint/file_writer.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBlockBytes = 4096;
constexpr size_t kCopyBytes = 4u << 20;

Status Copy(const std::string& source, FileWriter& target) {
  const int fd = open(source.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NotFound(source + ": cannot be copied: " + ErrnoText(errno));
  std::vector<std::byte> piece(kCopyBytes);
  Status status;
  ssize_t got = 0;
  do {
    got = read(fd, piece.data(), piece.size());
    if (got > 0) status = target.Write(std::span(piece).first(static_cast<size_t>(got)));
  } while (status && (got > 0 || (got < 0 && errno == EINTR)));
  if (status && got < 0) status = DataLoss(source + ": cannot be read: " + ErrnoText(errno));
  close(fd);
  return status;
}

// Writes one file after the other and keeps the books.
class SetWriter {
 public:
  SetWriter(const PathOf& path_of, WrittenFiles* written) : path_of_(path_of), written_(written) {}

  // `fill` writes the content; the file is finished here if it did not do so.
  Status Add(const std::string& path, const std::function<Status(FileWriter&)>& fill) {
    const fs::path target(path_of_(path));
    RETURN_IF_ERROR(MakeDirectories(target.parent_path().string()));
    directories_.insert(target.parent_path().string());
    ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(target.string()));
    const Status status = fill(file);
    written_->bytes += file.bytes();
    RETURN_IF_ERROR(status);
    written_->files.push_back({path, file.bytes(), file.checksum()});
    return {};
  }

  Status SyncDirectories() {
    for (const std::string& directory : directories_) RETURN_IF_ERROR(SyncDirectory(directory));
    return {};
  }

 private:
  const PathOf& path_of_;
  WrittenFiles* written_;
  std::set<std::string> directories_;
};

}  // namespace

Result<uint64_t> BytesNeeded(const FileSet& files) {
  uint64_t bytes = 0;
  for (const TensorFile& file : files.tensor_files) {
    bytes += SafetensorsBytes(file.tensors, file.metadata) + kBlockBytes;
  }
  for (const TextFile& file : files.text_files) bytes += file.content.size() + kBlockBytes;
  for (const CopiedFile& file : files.copied_files) {
    std::error_code error;
    bytes += fs::file_size(file.source, error) + kBlockBytes;
    if (error) return NotFound(file.source + ": cannot be copied: " + error.message());
  }
  return bytes;
}

FileSet AllFiles(const CheckpointContent& content) {
  FileSet files = content.files;
  if (!content.resume) return files;
  files.tensor_files.push_back({kOptimizerFile, content.optimizer, {{"format", "pt"}}});
  files.text_files.push_back({kStateFile, DumpJson(content.resume->ToJson()) + "\n"});
  return files;
}

Manifest ManifestOf(const CheckpointContent& content, uint64_t generation) {
  Manifest manifest;
  manifest.step = content.step;
  manifest.generation = generation;
  manifest.resumable = content.resume.has_value();
  if (content.resume) manifest.logical_world = content.resume->shape.logical_world;
  manifest.layout = content.layout;
  return manifest;
}

Status WriteFiles(const FileSet& files, const PathOf& path_of, WrittenFiles* written) {
  SetWriter writer(path_of, written);
  for (const TensorFile& file : files.tensor_files) {
    RETURN_IF_ERROR(writer.Add(file.path, [&](FileWriter& out) {
      return WriteSafetensors(out, file.path, file.tensors, file.metadata);
    }));
  }
  for (const TextFile& file : files.text_files) {
    RETURN_IF_ERROR(writer.Add(file.path, [&](FileWriter& out) -> Status {
      RETURN_IF_ERROR(out.Write(file.content));
      return out.Finish();
    }));
  }
  for (const CopiedFile& file : files.copied_files) {
    RETURN_IF_ERROR(writer.Add(file.path, [&](FileWriter& out) -> Status {
      RETURN_IF_ERROR(Copy(file.source, out));
      return out.Finish();
    }));
  }
  return writer.SyncDirectories();
}

Status WriteCheckpointFiles(const std::string& directory, const CheckpointContent& content,
                            uint64_t generation, uint64_t* written_bytes) {
  const auto below = [&](const std::string& path) { return (fs::path(directory) / path).string(); };
  WrittenFiles written;
  const Status status = WriteFiles(AllFiles(content), below, &written);
  *written_bytes = written.bytes;
  RETURN_IF_ERROR(status);
  Manifest manifest = ManifestOf(content, generation);
  manifest.files = written.files;
  FileSet last;
  last.text_files.push_back({kManifestFile, manifest.Serialize()});
  RETURN_IF_ERROR(WriteFiles(last, below, &written));
  return SyncDirectory(directory);
}

}  // namespace everstep
