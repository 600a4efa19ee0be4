#include "worker/checkpoint/retention.h"

#include <algorithm>
#include <set>

namespace everstep {

std::vector<int64_t> StepsToRemove(std::span<const RetainedCheckpoint> checkpoints,
                                   const RetentionOptions& options) {
  if (!options.total_limit || *options.total_limit < 1) return {};
  std::vector<RetainedCheckpoint> newest_first(checkpoints.begin(), checkpoints.end());
  std::ranges::sort(newest_first, std::greater(), &RetainedCheckpoint::step);

  const auto is_milestone = [&](int64_t step) {
    return options.milestone_steps > 0 && step % options.milestone_steps == 0;
  };
  std::set<int64_t> kept;
  for (const RetainedCheckpoint& checkpoint : newest_first) {
    if (!checkpoint.valid || std::ssize(kept) >= *options.total_limit) continue;
    if (!is_milestone(checkpoint.step)) kept.insert(checkpoint.step);
  }
  if (kept.empty()) return {};  // nothing valid to fall back to: remove nothing
  const int64_t oldest_counted = *kept.begin();
  const auto resumable = std::ranges::find_if(
      newest_first, [](const RetainedCheckpoint& c) { return c.valid && c.resumable; });
  if (resumable != newest_first.end()) kept.insert(resumable->step);
  if (options.best_step) kept.insert(*options.best_step);

  std::vector<int64_t> removed;
  for (const RetainedCheckpoint& checkpoint : newest_first) {
    if (kept.contains(checkpoint.step) || checkpoint.step >= oldest_counted) continue;
    if (checkpoint.valid && is_milestone(checkpoint.step)) continue;
    removed.push_back(checkpoint.step);
  }
  std::ranges::reverse(removed);
  return removed;
}

}  // namespace everstep
