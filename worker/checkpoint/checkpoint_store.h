// The checkpoints of one output directory: written completely or not at all, by one generation at
// a time, and thinned out without ever losing the newest valid one.
//
// A checkpoint is written to `.checkpoint-<step>.tmp.g<generation>`: files synced, the manifest
// last, the directory synced; then renamed to `checkpoint-<step>` and the parent synced.
#ifndef EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_STORE_H_
#define EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_STORE_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/fence.h"
#include "worker/checkpoint/retention.h"

namespace everstep {

struct StoreOptions {
  // Identity of the job: generations are compared within it. Two jobs that use one output
  // directory after another have different ones, since both count their generations from 1.
  std::string run;
  // Free bytes of the file system of a path; statvfs when empty.
  std::function<Result<uint64_t>(const std::string& path)> free_space;
};

// Thread-safe.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::string directory, StoreOptions options = {});

  const std::string& directory() const { return directory_; }

  // For the lead of `generation`, before it writes: creates the directory, raises the fence, and
  // removes what others left half-written. kAborted when a newer generation was here. A write of
  // this object that is under way goes on and belongs to `generation` from now. A full disk is no
  // error here: the fence is raised by the first write then.
  Status TakeOver(uint64_t generation);

  // Writes and commits; returns the path. On an error nothing of it is left and earlier
  // checkpoints are as they were. kResourceExhausted: not enough space, the message has the
  // missing bytes (checked before writing and when the disk fills up meanwhile); kAborted: a newer
  // generation has taken over. A checkpoint of the same step is replaced in one step.
  Result<std::string> Write(const CheckpointContent& content);

  // Writes each file into the directory itself, with a rename per file, all after the last one has
  // been written. For what a finished run leaves (model, tokenizer, results): names without
  // folders. Errors as Write's.
  Status WriteFinal(const FileSet& files);

  // Removes old checkpoints (of ours: with an everstep/ folder), after the newest that can be
  // resumed from has been verified. Returns the paths of what is gone.
  Result<std::vector<std::string>> Retain(const RetentionOptions& options);

  // Removes all checkpoints of ours: a run that starts over (overwrite_output_dir) must not find
  // them after a restart.
  Status RemoveAll();

  Result<FoundCheckpoints> FindNewest() const { return FindNewestCheckpoint(directory_); }

 private:
  std::string HiddenPath(const std::string& name, const char* purpose) const;
  void RemoveStale();
  Status CheckSpace(uint64_t bytes, const std::string& what) const;
  Status Commit(const std::string& temporary, const std::string& path);
  Status Remove(const std::vector<int64_t>& steps);

  const std::string directory_;
  const StoreOptions options_;
  GenerationFence fence_;
  std::mutex writing_;                 // one write at a time
  std::mutex mutex_;                   // of what follows
  std::set<std::string> in_progress_;  // hidden paths that RemoveStale must leave alone
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_STORE_H_
