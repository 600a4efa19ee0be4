#include "worker/checkpoint/file_writer.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "common/check.h"

namespace everstep {
namespace {

// One write or read call moves at most this much; it bounds memory where files are copied.
constexpr size_t kPieceBytes = 8u << 20;

ErrorCode CodeOf(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ErrorCode::kResourceExhausted;
    case ENOENT:
      return ErrorCode::kNotFound;
    default:
      return ErrorCode::kFailedPrecondition;
  }
}

tl::unexpected<Error> FileError(const std::string& path, const char* action, int error) {
  return MakeError(CodeOf(error), path + ": cannot " + action + ": " + ErrnoText(error));
}

}  // namespace

struct Checksum::State {
  XXH3_state_t* hash = XXH3_createState();
  State() { XXH3_128bits_reset(hash); }
  ~State() { XXH3_freeState(hash); }
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::Update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(state_->hash, bytes.data(), bytes.size());
}

std::string Checksum::Text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->hash);
  char digits[33];
  std::snprintf(digits, sizeof(digits), "%016llx%016llx",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return std::string("xxh3_128:") + digits;
}

std::string ChecksumOf(std::string_view text) {
  Checksum checksum;
  checksum.Update(std::as_bytes(std::span(text)));
  return checksum.Text();
}

Result<std::string> ChecksumOfFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(path, "open", errno);
  std::vector<std::byte> piece(kPieceBytes);
  Checksum checksum;
  ssize_t got = 0;
  do {
    got = read(fd, piece.data(), piece.size());
    if (got > 0) checksum.Update(std::span(piece).first(static_cast<size_t>(got)));
  } while (got > 0 || (got < 0 && errno == EINTR));
  const int error = errno;
  close(fd);
  if (got < 0) return FileError(path, "read", error);
  return checksum.Text();
}

Result<FileWriter> FileWriter::Create(const std::string& path) {
  FileWriter writer(path);
  writer.fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (writer.fd_ < 0) return FileError(path, "create", errno);
  return writer;
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      checksum_(std::move(other.checksum_)) {}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(path_.c_str());
}

Status FileWriter::Write(std::span<const std::byte> bytes) {
  EVERSTEP_CHECK(fd_ >= 0);
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), std::min(bytes.size(), kPieceBytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(path_, "write", errno);
    const auto count = static_cast<size_t>(written);
    checksum_.Update(bytes.first(count));
    bytes_ += count;
    bytes = bytes.subspan(count);
  }
  return {};
}

Status FileWriter::Finish() {
  EVERSTEP_CHECK(fd_ >= 0);
  if (fsync(fd_) != 0) return FileError(path_, "sync", errno);
  // Some file systems report a failed write only here.
  if (close(std::exchange(fd_, -1)) != 0) {
    const int error = errno;
    unlink(path_.c_str());
    return FileError(path_, "close", error);
  }
  return {};
}

}  // namespace everstep
