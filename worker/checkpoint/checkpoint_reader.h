// Reading checkpoints: nothing of one is used before all of it has been verified.
#ifndef EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_READER_H_
#define EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/manifest.h"

namespace everstep {

// "checkpoint-20" -> 20; nothing for any other name.
std::optional<int64_t> StepOfCheckpointName(const std::string& name);
std::string CheckpointName(int64_t step);

// The manifest, and that every file is there with its size. Cheap: opens the manifest only.
// kNotFound: no manifest (not ours, or cut off while it was written); kDataLoss: damaged.
Result<Manifest> InspectCheckpoint(const std::string& path);
// InspectCheckpoint and the checksum of every file: reads all of it.
Result<Manifest> VerifyCheckpoint(const std::string& path);

// Verifies everything, then reads the state and maps the optimizer's tensors.
// kFailedPrecondition: complete, but without resume state (save_only_model).
Result<LoadedCheckpoint> LoadCheckpoint(const std::string& path);

struct SkippedCheckpoint {
  std::string path;
  std::string reason;
};
struct FoundCheckpoints {
  std::optional<std::string> newest;  // path of the newest valid one that can be resumed from
  int64_t step = 0;
  std::vector<SkippedCheckpoint> skipped;  // newer ones, newest first, each with its reason
};
// Looks for checkpoint-<step> directories from the highest step down and verifies each until one
// is valid. A directory that does not exist has none.
Result<FoundCheckpoints> FindNewestCheckpoint(const std::string& directory);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_READER_H_
