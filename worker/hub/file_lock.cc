#include "worker/hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace everstep {

Result<FileLock> FileLock::Acquire(const std::string& path, const Options& options) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return MakeError(ErrorCode::kFailedPrecondition,
                     path + ": cannot be made: " + ErrnoText(errno) +
                         ": set cache_dir or HF_HOME to a writable directory");
  }
  FileLock lock(descriptor);
  uint64_t progress = 0;
  TimePoint changed = options.clock->Now();
  bool waiting = false;
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Internal(path + ": cannot be locked: " + ErrnoText(errno));
    }
    if (!std::exchange(waiting, true) && options.on_wait) options.on_wait();
    const uint64_t now = options.progress ? options.progress() : 0;
    if (std::exchange(progress, now) != now) changed = options.clock->Now();
    if (options.clock->Now() - changed > options.stall_timeout) {
      return MakeError(ErrorCode::kDeadlineExceeded,
                       path +
                           ": another process holds the lock and makes no progress: end it, or "
                           "start again later");
    }
    options.sleep(options.poll_interval);
  }
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace everstep
