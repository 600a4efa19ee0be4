#include "worker/hub/blob_download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "common/files.h"
#include "common/strings.h"
#include "worker/hub/digest.h"
#include "worker/hub/file_lock.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

constexpr Duration kProgressInterval = std::chrono::seconds(2);
// A file that comes out wrong is fetched anew, once more.
constexpr int kMaxCorruptDownloads = 2;

uint64_t SizeOf(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : size;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The partial file of a download. Bytes are appended; a new attempt goes on where it ends.
class PartialFile {
 public:
  explicit PartialFile(std::string path) : path_(std::move(path)) {}
  ~PartialFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  Status Open() {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    return descriptor_ < 0 ? Failed("cannot be made") : Status{};
  }
  Status Truncate(uint64_t size) {
    return ::ftruncate(descriptor_, static_cast<off_t>(size)) != 0 ? Failed("cannot be cut")
                                                                   : Status{};
  }
  Status Append(std::string_view data) {
    while (!data.empty()) {
      const ssize_t written = ::write(descriptor_, data.data(), data.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Failed("cannot be written");
      data.remove_prefix(static_cast<size_t>(written));
    }
    return {};
  }
  Status Sync() { return ::fsync(descriptor_) != 0 ? Failed("cannot be written") : Status{}; }
  uint64_t size() const { return SizeOf(path_); }
  const std::string& path() const { return path_; }

 private:
  Status Failed(const std::string& what) const {
    const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return MakeError(full ? ErrorCode::kResourceExhausted : ErrorCode::kFailedPrecondition,
                     path_ + ": " + what + ": " + ErrnoText(errno) +
                         (full ? ": free some space, or set cache_dir or HF_HOME to another disk; "
                                 "what is downloaded is kept"
                               : ": set cache_dir or HF_HOME to a writable directory"));
  }

  std::string path_;
  int descriptor_ = -1;
};

// "model.safetensors: 40% of 257.0 MiB, 31.2 MiB/s", every few seconds and at the end.
class ProgressLines {
 public:
  ProgressLines(const HubOptions& options, std::string file, const FileInfo& info)
      : options_(options),
        file_(std::move(file)),
        info_(info),
        started_(options.clock->Now()),
        reported_(started_) {}

  void Add(uint64_t bytes) { received_ += bytes; }
  void Report(uint64_t size) {
    const TimePoint now = options_.clock->Now();
    if (!options_.progress || now - reported_ < kProgressInterval) return;
    reported_ = now;
    options_.progress(file_ + ": " + Share(size) + ", " + Rate(now));
  }
  void Finish(uint64_t size) {
    if (!options_.progress) return;
    options_.progress(file_ + ": " + FormatBytes(size) + " done, " + Rate(options_.clock->Now()));
  }

 private:
  std::string Share(uint64_t size) const {
    if (!info_.size.has_value() || *info_.size == 0) return FormatBytes(size);
    return std::to_string(size * 100 / *info_.size) + "% of " + FormatBytes(*info_.size);
  }
  std::string Rate(TimePoint now) const {
    constexpr double kShortest = 1e-3;
    const double seconds = std::max(kShortest, Seconds(now - started_));
    return FormatBytes(static_cast<uint64_t>(static_cast<double>(received_) / seconds)) + "/s";
  }

  const HubOptions& options_;
  std::string file_;
  FileInfo info_;
  TimePoint started_;
  TimePoint reported_;
  uint64_t received_ = 0;
};

class BlobDownload {
 public:
  BlobDownload(const HubOptions& options, const CacheLayout& cache, std::string commit,
               std::string file, FileInfo info, HubClient* client)
      : options_(options),
        cache_(cache),
        commit_(std::move(commit)),
        file_(std::move(file)),
        info_(std::move(info)),
        client_(client),
        partial_(cache.Incomplete(info_.etag)),
        lines_(options, file_, info_) {}

  // The lock is held.
  Status Run() {
    RETURN_IF_ERROR(partial_.Open());
    Status checked;
    for (int i = 0; i < kMaxCorruptDownloads; ++i) {
      RETURN_IF_ERROR(CheckSpace());
      RETURN_IF_ERROR(Fill());
      checked = Check();
      if (checked.has_value()) return Publish();
      if (checked.error().code != ErrorCode::kDataLoss) return checked;
      if (options_.progress) options_.progress(checked.error().message + "; fetching it anew");
      RETURN_IF_ERROR(partial_.Truncate(0));
    }
    std::error_code error;
    fs::remove(partial_.path(), error);
    return DataLoss(checked.error().message +
                    ": the hub or something on the way to it sends wrong content; try again, or "
                    "set HF_ENDPOINT to another hub");
  }

 private:
  Status CheckSpace() const {
    if (!info_.size.has_value()) return {};
    const uint64_t present = partial_.size();
    const uint64_t needed = *info_.size > present ? *info_.size - present : 0;
    const auto free = options_.free_bytes(fs::path(partial_.path()).parent_path().string());
    if (!free.has_value() || *free >= needed) return {};
    return MakeError(ErrorCode::kResourceExhausted,
                     file_ + " needs " + FormatBytes(needed) + " and " + partial_.path() +
                         " has room for " + FormatBytes(*free) +
                         ": free some space, or set cache_dir or HF_HOME to another disk");
  }

  // Downloads until the partial file has all bytes.
  Status Fill() {
    Retry retry(options_);
    while (true) {  // bounded by Retry
      const uint64_t before = partial_.size();
      if (info_.size.has_value() && before >= *info_.size && before > 0) return {};
      Status status = Attempt(before, &retry);
      if (status.has_value()) return {};
      if (status.error().code == ErrorCode::kDataLoss && before > 0) {
        RETURN_IF_ERROR(partial_.Truncate(0));
        status.error().code = ErrorCode::kUnavailable;
      } else if (partial_.size() > before) {
        retry.MadeProgress();
      }
      status.error().message = file_ + ": " + status.error().message;
      if (!retry.Again(status.error())) return status;
    }
  }

  Status Attempt(uint64_t offset, Retry* retry) {
    uint64_t size = offset;
    const auto on_start = [&](uint64_t start) -> Status {
      size = start;
      return partial_.Truncate(start);
    };
    const auto on_data = [&](std::string_view data) -> Status {
      size += data.size();
      if (info_.size.has_value() && size > *info_.size) {
        return DataLoss("the hub sends more than the " + std::to_string(*info_.size) +
                        " bytes that it named");
      }
      RETURN_IF_ERROR(partial_.Append(data));
      lines_.Add(data.size());
      lines_.Report(size);
      return {};
    };
    return client_->Download(commit_, file_, offset, on_start, on_data, retry);
  }

  Status Check() const {
    const uint64_t size = partial_.size();
    if (info_.size.has_value() && size != *info_.size) {
      return DataLoss(file_ + ": has " + std::to_string(size) + " bytes, but the hub's has " +
                      std::to_string(*info_.size));
    }
    Status digest = CheckDigest(partial_.path(), info_.etag);
    if (!digest.has_value()) digest.error().message = file_ + ": " + digest.error().message;
    return digest;
  }

  Status Publish() {
    RETURN_IF_ERROR(partial_.Sync());
    const std::string blob = cache_.Blob(info_.etag);
    if (::rename(partial_.path().c_str(), blob.c_str()) != 0) {
      return Internal(blob + ": cannot be made: " + ErrnoText(errno));
    }
    lines_.Finish(SizeOf(blob));
    return SyncDirectory(fs::path(blob).parent_path().string());
  }

  const HubOptions& options_;
  const CacheLayout& cache_;
  std::string commit_;
  std::string file_;
  FileInfo info_;
  HubClient* client_;
  PartialFile partial_;
  ProgressLines lines_;
};

}  // namespace

Status FetchFile(const HubOptions& options, const CacheLayout& cache, const std::string& commit,
                 const std::string& file, HubClient* client) {
  ASSIGN_OR_RETURN(const FileInfo info, client->GetFileInfo(commit, file));
  const std::string blob = cache.Blob(info.etag);
  if (!Exists(blob)) {
    FileLock::Options lock_options{
        .progress = [&] { return SizeOf(cache.Incomplete(info.etag)); },
        .stall_timeout = options.lock_stall_timeout,
        .poll_interval = options.lock_poll_interval,
        .on_wait =
            [&] {
              if (options.progress) {
                options.progress(file + ": another process downloads it; waiting");
              }
            },
        .clock = options.clock,
        .sleep = options.sleep};
    ASSIGN_OR_RETURN(const FileLock lock,
                     FileLock::Acquire(cache.LockFile(info.etag), lock_options));
    // Whoever held the lock before may have brought it.
    if (!Exists(blob)) {
      RETURN_IF_ERROR(BlobDownload(options, cache, commit, file, info, client).Run());
    }
  }
  return cache.Link(commit, file, info.etag);
}

}  // namespace everstep
