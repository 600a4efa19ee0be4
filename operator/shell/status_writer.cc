#include "operator/shell/status_writer.h"

#include <algorithm>
#include <future>
#include <utility>

#include "common/log.h"
#include "operator/api/names.h"

namespace everstep {
namespace {

bool MayWorkLater(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded ||
         error.code == ErrorCode::kConflict;
}

}  // namespace

StatusWriter::StatusWriter(ObjectClient& objects, int threads) : objects_(objects) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

StatusWriter::~StatusWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (auto& [name, job] : jobs_) Conclude(name, std::move(job.pending), Unavailable("is ending"));
}

void StatusWriter::Post(const std::string& job, Change change, Done done) {
  Add(job, {"", std::move(change), std::move(done)});
}

void StatusWriter::PostNewest(const std::string& job, const std::string& slot, Change change) {
  Add(job, {slot, std::move(change), nullptr});
}

Status StatusWriter::Write(const std::string& job, Change change) {
  std::promise<Status> written;
  Post(job, std::move(change), [&](const Status& status) { written.set_value(status); });
  return written.get_future().get();
}

void StatusWriter::Add(const std::string& job, Entry entry) {
  std::unique_lock lock(mutex_);
  Job& state = jobs_[job];
  const auto earlier = std::ranges::find_if(state.pending, [&](const Entry& other) {
    return !entry.slot.empty() && other.slot == entry.slot;
  });
  if (earlier != state.pending.end()) {
    *earlier = std::move(entry);
  } else if (state.pending.size() < kMaxPending && !ending_) {
    state.pending.push_back(std::move(entry));
  } else {
    lock.unlock();
    std::deque<Entry> refused;
    refused.push_back(std::move(entry));
    Conclude(job, std::move(refused),
             MakeError(ErrorCode::kResourceExhausted, "too many changes of its status wait"));
    return;
  }
  if (!threads_.empty()) return changed_.notify_one();
  // Whoever is writing this job takes it along.
  changed_.wait(lock, [&] { return !jobs_.contains(job) || !jobs_[job].under_way; });
  if (jobs_.contains(job)) WriteOne(job, lock);
}

void StatusWriter::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    const std::string job = Next(lock);
    if (job.empty()) return;
    WriteOne(job, lock);
  }
}

std::string StatusWriter::Next(std::unique_lock<std::mutex>& lock) {
  while (!ending_) {
    std::optional<TimePoint> earliest;
    for (const auto& [name, job] : jobs_) {
      if (job.under_way || job.pending.empty()) continue;
      if (!job.not_before || *job.not_before <= clock_.Now()) return name;
      earliest = std::min(earliest.value_or(*job.not_before), *job.not_before);
    }
    if (earliest) {
      changed_.wait_until(lock, *earliest);
    } else {
      changed_.wait(lock);
    }
  }
  return "";
}

void StatusWriter::WriteOne(const std::string& job, std::unique_lock<std::mutex>& lock) {
  Job& state = jobs_[job];
  state.under_way = true;
  std::deque<Entry> entries = std::exchange(state.pending, {});
  lock.unlock();
  const Status written = Apply(job, entries);
  std::deque<Entry> again = Conclude(job, std::move(entries), written);
  lock.lock();
  state.under_way = false;
  state.not_before.reset();
  if (!again.empty()) state.not_before = clock_.Now() + kRetry;
  std::ranges::move(state.pending, std::back_inserter(again));
  state.pending = std::move(again);
  if (state.pending.empty()) jobs_.erase(job);
  changed_.notify_all();
}

Status StatusWriter::Apply(const std::string& job, const std::deque<Entry>& entries) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ASSIGN_OR_RETURN(OrderedJson object, objects_.Get(names::kKind, job));
    OrderedJson status = object.value("status", OrderedJson::object());
    if (!status.is_object()) status = OrderedJson::object();
    const OrderedJson before = status;
    for (const Entry& entry : entries) {
      OrderedJson changed = status;
      if (entry.change(changed)) status = std::move(changed);
    }
    if (status == before) return {};
    object["status"] = std::move(status);
    const auto written = objects_.UpdateStatus(std::move(object));
    if (written) return {};
    if (written.error().code != ErrorCode::kConflict) return tl::unexpected(written.error());
  }
  return MakeError(ErrorCode::kConflict, "the status of " + job + " keeps changing");
}

std::deque<StatusWriter::Entry> StatusWriter::Conclude(const std::string& job,
                                                       std::deque<Entry> entries,
                                                       const Status& written) {
  std::deque<Entry> again;
  for (Entry& entry : entries) {
    if (entry.done) {
      entry.done(written);
    } else if (!written) {
      LogWarning("status not written: " + written.error().message, {{"job", job}});
      if (MayWorkLater(written.error())) again.push_back(std::move(entry));
    }
  }
  return again;
}

}  // namespace everstep
