#include "common/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <random>

namespace everstep {
namespace {

ErrorCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return ErrorCode::kNotFound;
    case ENOSPC:
    case EDQUOT:
      return ErrorCode::kResourceExhausted;
    case EEXIST:
      return ErrorCode::kAlreadyExists;
    default:
      return ErrorCode::kFailedPrecondition;
  }
}

tl::unexpected<Error> FileError(const std::string& path, const char* action, int error) {
  return MakeError(CodeOf(error), path + ": cannot " + action + ": " + ErrnoText(error));
}

Status WriteAndSync(int fd, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(path, "write", errno);
    content.remove_prefix(static_cast<size_t>(written));
  }
  if (fsync(fd) != 0) return FileError(path, "sync", errno);
  return {};
}

// Streams would take what they got before an error for the whole file.
Result<std::string> ReadToEnd(int fd, const std::string& path) {
  std::string content;
  char part[1 << 16];
  while (true) {
    const ssize_t size = read(fd, part, sizeof(part));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EISDIR) {
      return InvalidArgument(path + ": is a directory, a file is needed");
    }
    if (size < 0) return FileError(path, "read", errno);
    if (size == 0) return content;
    content.append(part, static_cast<size_t>(size));
  }
}

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(path, "open", errno);
  Result<std::string> content = ReadToEnd(fd, path);
  close(fd);
  return content;
}

Status WriteFileAtomically(const std::string& path, std::string_view content) {
  // Not by the process id: processes of several pods that share a volume have the same ones.
  std::random_device random;
  const std::string temporary =
      path + ".tmp." + std::to_string(random()) + "." + std::to_string(random());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(path, "create", errno);
  Status status = WriteAndSync(fd, path, content);
  close(fd);
  if (status && rename(temporary.c_str(), path.c_str()) != 0) {
    status = FileError(path, "replace", errno);
  }
  if (!status) {
    unlink(temporary.c_str());
    return status;
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return SyncDirectory(parent.empty() ? "." : parent);
}

Status SyncDirectory(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError(directory, "open", errno);
  const int synced = fsync(fd);
  const int error = errno;
  close(fd);
  if (synced != 0) return FileError(directory, "sync", error);
  return {};
}

Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return FileError(path, "create directory", error.value());
  return {};
}

}  // namespace everstep
