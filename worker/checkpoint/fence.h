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

  // Generations are compared within one `run` (the job's identity): a new run that uses the
  // directory again counts from 1, and takes over whatever an earlier run left.
  GenerationFence(std::string directory, std::string run)
      : directory_(std::move(directory)), run_(std::move(run)) {}

  // Raises the fence to `generation`, durably. kAborted when it is higher already. On a full disk
  // the file stays as it is (kResourceExhausted) and the next Guard raises it.
  Status Raise(uint64_t generation);
  // Runs `commit` unless a newer generation or another run has raised the fence: kAborted then.
  // Who has never raised it (a tool, a run that clears its directory first) is not held back.
  Status Guard(const std::function<Status()>& commit);

  // The generation this process last raised the fence to; 0 before.
  uint64_t generation() const { return generation_; }

 private:
  struct Owner {
    std::string run;
    uint64_t generation = 0;
  };
  Result<Owner> Read() const;
  Status Write();

  const std::string directory_;
  const std::string run_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<bool> written_{false};  // the file has said generation_
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_FENCE_H_
