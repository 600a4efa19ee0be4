#include "worker/checkpoint/checkpoint_saver.h"

#include <chrono>

#include "common/clock.h"
#include "common/log.h"

namespace everstep {

CheckpointSaver::CheckpointSaver(CheckpointStore& store, Callback callback)
    : store_(store), callback_(std::move(callback)), thread_([this] { Run(); }) {}

CheckpointSaver::~CheckpointSaver() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointSaver::Save(CheckpointContent content, RetentionOptions retention) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !waiting_; });
  waiting_ = Job{std::move(content), retention};
  changed_.notify_all();
}

void CheckpointSaver::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !waiting_ && !busy_; });
}

void CheckpointSaver::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return waiting_ || stop_; });
    if (!waiting_) return;
    {
      const Job job = std::move(*waiting_);
      waiting_.reset();
      busy_ = true;
      changed_.notify_all();
      lock.unlock();
      Execute(job);
    }  // the snapshot's memory is free before anybody is told
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void CheckpointSaver::Execute(const Job& job) {
  const TimePoint start = SystemClock().Now();
  SaveOutcome outcome{job.content.step, store_.Write(job.content), 0, {}};
  outcome.seconds = Seconds(SystemClock().Now() - start);
  if (outcome.path) {
    auto removed = store_.Retain(job.retention);
    if (removed) {
      outcome.removed = std::move(*removed);
    } else {
      LogWarning("old checkpoints cannot be removed", {{"error", removed.error().message}});
    }
  }
  callback_(outcome);
}

}  // namespace everstep
