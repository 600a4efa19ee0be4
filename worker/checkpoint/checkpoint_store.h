// The checkpoints of one output directory: written completely or not at all, by one generation at
// a time, and thinned out without ever losing the newest valid one.
//
// A checkpoint is written to `.checkpoint-<step>.tmp.g<generation>`: files synced, the manifest
// last, the directory synced; then renamed to `checkpoint-<step>` and the parent synced.
#ifndef EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_STORE_H_
#define EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/fence.h"
#include "worker/checkpoint/retention.h"

namespace everstep {

class CheckpointStore {
 public:
  // Free bytes of the file system of a path. A parameter so that tests can fill the disk.
  using FreeSpace = std::function<Result<uint64_t>(const std::string& path)>;

  explicit CheckpointStore(std::string directory, FreeSpace free_space = {});

  const std::string& directory() const { return directory_; }

  // For the lead of `generation`, before it writes: creates the directory, raises the fence, and
  // removes what older generations left half-written. kAborted when a newer generation was here.
  // A write of this very process that is under way goes on and belongs to `generation` from now.
  Status TakeOver(uint64_t generation);

  // Writes and commits; returns the path. On an error nothing of it is left and earlier
  // checkpoints are as they were. kResourceExhausted: not enough space, the message has the
  // missing bytes (checked before writing and when the disk fills up meanwhile); kAborted: a newer
  // generation has taken over. A checkpoint of the same step is replaced in one step.
  Result<std::string> Write(const CheckpointContent& content);

  // Writes each file into the directory itself, with a rename per file, all after the last one has
  // been written. For what a finished run leaves (model, tokenizer, results). Errors as Write's.
  Status WriteFinal(const FileSet& files);

  // Removes old checkpoints (those with a manifest; others are not ours). Returns their paths.
  Result<std::vector<std::string>> Retain(const RetentionOptions& options);

  // Removes all checkpoints, those of other programs too: a run that starts over
  // (overwrite_output_dir) must not find them after a restart.
  Status RemoveAll();

  Result<FoundCheckpoints> FindNewest() const { return FindNewestCheckpoint(directory_); }

 private:
  Status RemoveStale();
  Status CheckSpace(uint64_t bytes, const std::string& what) const;
  Status Commit(const std::string& temporary, const std::string& path);
  Status Remove(const std::string& path);

  const std::string directory_;
  const FreeSpace free_space_;
  GenerationFence fence_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_STORE_H_
