// The executor of retention: what CheckpointStore removes, and how it makes sure of what it keeps.
#include <algorithm>
#include <filesystem>

#include "common/log.h"
#include "worker/checkpoint/checkpoint_store.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

// Checkpoints of ours in `directory`, newest first: an everstep/ folder, with or without what
// belongs into it.
std::vector<RetainedCheckpoint> OursIn(const std::string& directory) {
  std::vector<RetainedCheckpoint> ours;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto step = StepOfCheckpointName(entry->path().filename().string());
    std::error_code ignored;
    if (!step || !fs::is_directory(entry->path() / "everstep", ignored)) continue;
    const auto manifest = InspectCheckpoint(entry->path().string());
    const bool valid = manifest && manifest->step == *step;
    ours.push_back({*step, valid, valid && manifest->resumable});
  }
  std::ranges::sort(ours, std::greater(), &RetainedCheckpoint::step);
  return ours;
}

}  // namespace

Result<std::vector<std::string>> CheckpointStore::Retain(const RetentionOptions& options) {
  if (options.total_limit.value_or(0) < 1) return std::vector<std::string>();
  const std::lock_guard writing(writing_);
  std::vector<RetainedCheckpoint> ours = OursIn(directory_);
  // Sizes are right in all that are called valid; the one to fall back on is read to the end.
  for (RetainedCheckpoint& checkpoint : ours) {
    if (!checkpoint.valid || !checkpoint.resumable) continue;
    const std::string path = (fs::path(directory_) / CheckpointName(checkpoint.step)).string();
    const auto verified = VerifyCheckpoint(path);
    if (verified) break;
    LogWarning("a checkpoint is damaged", {{"reason", verified.error().message}});
    checkpoint.valid = false;
  }
  const std::vector<int64_t> steps = StepsToRemove(ours, options);
  RETURN_IF_ERROR(Remove(steps));
  std::vector<std::string> removed;
  for (const int64_t step : steps) {
    removed.push_back((fs::path(directory_) / CheckpointName(step)).string());
  }
  return removed;
}

Status CheckpointStore::RemoveAll() {
  const std::lock_guard writing(writing_);
  std::vector<int64_t> steps;
  for (const RetainedCheckpoint& checkpoint : OursIn(directory_)) steps.push_back(checkpoint.step);
  return Remove(steps);
}

// Out of sight first, in one step each: half a directory must not look like a checkpoint.
Status CheckpointStore::Remove(const std::vector<int64_t>& steps) {
  if (steps.empty()) return {};
  std::vector<std::string> trash;
  const Status renamed = fence_.Guard([&]() -> Status {
    for (const int64_t step : steps) {
      const std::string name = CheckpointName(step);
      const std::string hidden = HiddenPath(name, "trash");
      std::error_code error;
      fs::remove_all(hidden, error);
      fs::rename(fs::path(directory_) / name, hidden, error);
      if (error) {
        return MakeError(
            ErrorCode::kFailedPrecondition,
            (fs::path(directory_) / name).string() + ": cannot be removed: " + error.message());
      }
      trash.push_back(hidden);
    }
    return {};
  });
  for (const std::string& hidden : trash) {
    std::error_code ignored;  // what stays is removed at the next takeover
    fs::remove_all(hidden, ignored);
  }
  return renamed;
}

}  // namespace everstep
