#include "worker/recovery/membership_mailbox.h"

#include <utility>

namespace everstep {

void MembershipMailbox::SetInterrupt(std::function<void()> interrupt) {
  const std::lock_guard lock(mutex_);
  interrupt_ = std::move(interrupt);
}

void MembershipMailbox::Deliver(wire::Membership membership) {
  const std::lock_guard lock(mutex_);
  if (newest_.has_value() && membership.generation <= newest_->generation) return;
  const bool interrupts = !membership.planned;
  if (interrupts) newest_after_failure_ = membership.generation;
  newest_ = std::move(membership);
  changed_.notify_all();
  if (interrupts && interrupt_) interrupt_();
}

void MembershipMailbox::RequestStop() {
  const std::lock_guard lock(mutex_);
  stop_requested_ = true;
  changed_.notify_all();
}

void MembershipMailbox::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
  if (interrupt_) interrupt_();
}

Result<wire::Membership> MembershipMailbox::AwaitNewer(uint64_t generation, bool after_failure) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] {
    if (!newest_.has_value() || newest_->generation <= generation) return false;
    return !after_failure || newest_after_failure_ > generation;
  };
  changed_.wait(lock, [&] { return closed_ || stop_requested_ || ready(); });
  if (closed_) return MakeError(ErrorCode::kAborted, "the supervisor closed the control channel");
  if (ready()) return *newest_;
  return MakeError(ErrorCode::kAborted, "asked to stop while waiting for a membership");
}

uint64_t MembershipMailbox::PendingPlanned(uint64_t generation) const {
  const std::lock_guard lock(mutex_);
  if (!newest_.has_value() || newest_->generation <= generation || !newest_->planned) return 0;
  return newest_->generation;
}

bool MembershipMailbox::Superseded(uint64_t generation) const {
  const std::lock_guard lock(mutex_);
  return closed_ || newest_after_failure_ > generation;
}

bool MembershipMailbox::stop_requested() const {
  const std::lock_guard lock(mutex_);
  return stop_requested_;
}

}  // namespace everstep
