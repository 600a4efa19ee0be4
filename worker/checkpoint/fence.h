// The fence of an output directory: a file with the newest generation that took over there.
// Writers of older generations may not commit.
#ifndef EVERSTEP_WORKER_CHECKPOINT_FENCE_H_
#define EVERSTEP_WORKER_CHECKPOINT_FENCE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "common/result.h"

namespace everstep {

// Thread-safe. The check and what it guards happen under a lock file, so that no generation can
// take over in between; a lock that cannot be had within kLockTimeoutSeconds (its holder is
// stopped, or the file system has no locks) is done without.
class GenerationFence {
 public:
  static constexpr int kLockTimeoutSeconds = 5;

  explicit GenerationFence(std::string directory) : directory_(std::move(directory)) {}

  // Raises the fence to `generation`, durably. kAborted when it is higher already.
  Status Raise(uint64_t generation);
  // Runs `commit` unless a newer generation has raised the fence: kAborted then.
  Status Guard(const std::function<Status()>& commit);

  // The generation this process last raised the fence to; 0 before.
  uint64_t generation() const { return generation_; }

 private:
  Result<uint64_t> Read() const;

  const std::string directory_;
  std::atomic<uint64_t> generation_{0};
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_FENCE_H_
