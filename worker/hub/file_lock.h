// A lock between processes: flock(2) on a file, as huggingface_hub takes it too. The kernel gives
// it up when its holder dies.
#ifndef EVERSTEP_WORKER_HUB_FILE_LOCK_H_
#define EVERSTEP_WORKER_HUB_FILE_LOCK_H_

#include <functional>
#include <string>

#include "common/clock.h"
#include "common/result.h"

namespace everstep {

class FileLock {
 public:
  struct Options {
    // Something that changes as long as the holder works (the size of the file it downloads).
    std::function<uint64_t()> progress = nullptr;
    // Waiting ends when `progress` has not changed for so long.
    Duration stall_timeout = std::chrono::minutes(10);
    Duration poll_interval = std::chrono::milliseconds(50);
    std::function<void()> on_wait = nullptr;  // called once, when somebody else holds the lock
    const Clock* clock = nullptr;
    std::function<void(Duration)> sleep = nullptr;
  };

  // Blocks until the lock is held; kDeadlineExceeded when its holder makes no progress.
  static Result<FileLock> Acquire(const std::string& path, const Options& options);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_HUB_FILE_LOCK_H_
