#include "operator/kube/work_queue.h"

#include <algorithm>
#include <cmath>

namespace everstep {
namespace {

constexpr int kMaxDoublings = 40;  // beyond any last_delay

Duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

WorkQueue::WorkQueue(const Options& options, const Clock& clock)
    : options_(options), clock_(clock), tokens_(options.burst), tokens_at_(clock.Now()) {}

void WorkQueue::Add(const std::string& key) {
  const std::lock_guard lock(mutex_);
  ++added_;
  Ready(key);
}

void WorkQueue::AddAfter(const std::string& key, Duration delay) {
  const std::lock_guard lock(mutex_);
  ++added_;
  if (delay <= Duration::zero()) {
    Ready(key);
  } else {
    Schedule(key, clock_.Now() + delay);
  }
}

void WorkQueue::AddAfterFailure(const std::string& key) {
  const std::lock_guard lock(mutex_);
  ++added_;
  ++retried_;
  Schedule(key, clock_.Now() + FailureDelay(key));
}

// The row's own delay or the bucket's, whichever is longer.
Duration WorkQueue::FailureDelay(const std::string& key) {
  const int doublings = std::min(failures_[key]++, kMaxDoublings);
  const double own = std::ldexp(Seconds(options_.first_delay), doublings);
  const TimePoint now = clock_.Now();
  tokens_ = std::min(options_.burst, tokens_ + Seconds(now - tokens_at_) * options_.per_second);
  tokens_at_ = now;
  tokens_ -= 1;
  const double bucket = tokens_ < 0 ? -tokens_ / options_.per_second : 0;
  return FromSeconds(std::max(std::min(own, Seconds(options_.last_delay)), bucket));
}

void WorkQueue::Forget(const std::string& key) {
  const std::lock_guard lock(mutex_);
  failures_.erase(key);
}

void WorkQueue::Ready(const std::string& key) {
  waiting_.erase(key);
  if (!dirty_.insert(key).second) return;
  if (busy_.contains(key)) return;
  ready_.push_back(key);
  changed_.notify_one();
}

void WorkQueue::Schedule(const std::string& key, TimePoint at) {
  if (dirty_.contains(key)) return;  // sooner than that
  const auto [entry, added] = waiting_.emplace(key, at);
  if (!added) entry->second = std::min(entry->second, at);
  changed_.notify_all();
}

void WorkQueue::PromoteDue() {
  const TimePoint now = clock_.Now();
  for (auto entry = waiting_.begin(); entry != waiting_.end();) {
    if (entry->second > now) {
      ++entry;
      continue;
    }
    const std::string key = entry->first;
    entry = waiting_.erase(entry);
    Ready(key);
  }
}

std::optional<std::string> WorkQueue::Take() {
  PromoteDue();
  if (ended_ || ready_.empty()) return std::nullopt;
  std::string key = std::move(ready_.front());
  ready_.pop_front();
  dirty_.erase(key);
  busy_[key] = clock_.Now();
  return key;
}

std::optional<std::string> WorkQueue::TryGet() {
  const std::lock_guard lock(mutex_);
  return Take();
}

std::optional<std::string> WorkQueue::Get() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    if (auto key = Take()) return key;
    Duration wait = std::chrono::hours(1);
    for (const auto& [key, at] : waiting_) wait = std::min(wait, at - clock_.Now());
    changed_.wait_for(lock, wait);
  }
  return std::nullopt;
}

void WorkQueue::Done(const std::string& key) {
  const std::lock_guard lock(mutex_);
  busy_.erase(key);
  if (!dirty_.contains(key)) return;
  ready_.push_back(key);
  changed_.notify_one();
}

void WorkQueue::End() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void WorkQueue::Wake() { changed_.notify_all(); }

WorkQueue::Figures WorkQueue::figures() const {
  const std::lock_guard lock(mutex_);
  Figures figures{.depth = ready_.size(), .added = added_, .retried = retried_};
  for (const auto& [key, since] : busy_) {
    const Duration age = clock_.Now() - since;
    figures.unfinished += age;
    figures.longest = std::max(figures.longest, age);
  }
  return figures;
}

}  // namespace everstep
