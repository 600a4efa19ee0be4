// Saves in the background: training waits for the copy of its state in memory, not for the disk.
#ifndef EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_SAVER_H_
#define EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_SAVER_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/result.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/checkpoint_store.h"

namespace everstep {

struct SaveOutcome {
  int64_t step = 0;
  Result<std::string> path;          // of the checkpoint, or why there is none
  double seconds = 0;                // that writing took
  std::vector<std::string> removed;  // by retention, after a success
};

// One thread; one save under way and one waiting at most. The callback runs on that thread.
class CheckpointSaver {
 public:
  using Callback = std::function<void(const SaveOutcome&)>;

  // `store` is borrowed and outlives the saver.
  CheckpointSaver(CheckpointStore& store, Callback callback);
  // Finishes what was handed over.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Takes over `content`, whose memory must be its own (files.memory). Returns at once, unless two
  // saves are pending: then when the first of them is done.
  void Save(CheckpointContent content, RetentionOptions retention);
  // Returns when everything handed over has been written and reported.
  void Wait();

 private:
  struct Job {
    CheckpointContent content;
    RetentionOptions retention;
  };
  void Run();
  void Execute(const Job& job);

  CheckpointStore& store_;
  const Callback callback_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> waiting_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_SAVER_H_
