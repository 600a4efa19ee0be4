// Where the trainer finds the membership it should train in.
//
// The control channel's reader thread delivers memberships as they come; the trainer's thread
// looks at them when it suits: a planned one at a step boundary, one that follows a death at once
// (the delivery aborts the exchange that the trainer may be waiting in).
//
// Thread-safe.
#ifndef EVERSTEP_WORKER_RECOVERY_MEMBERSHIP_MAILBOX_H_
#define EVERSTEP_WORKER_RECOVERY_MEMBERSHIP_MAILBOX_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "common/result.h"
#include "common/wire.h"

namespace everstep {

class MembershipMailbox {
 public:
  // `interrupt` is called, from the delivering thread, when the generation in use is over: a
  // membership that follows a death has come, or the mailbox was closed. It must not block.
  void SetInterrupt(std::function<void()> interrupt);

  // An older generation than the newest delivered one is dropped.
  void Deliver(wire::Membership membership);
  void RequestStop();
  // No more memberships will come (the supervisor is gone).
  void Close();

  // Blocks until there is a membership newer than `generation`; with `after_failure`, one that
  // is not merely planned (its members know of the death). kAborted once closed or stopped.
  Result<wire::Membership> AwaitNewer(uint64_t generation, bool after_failure);

  // Generation of a planned membership newer than `generation` that waits for a step boundary;
  // 0 when there is none.
  uint64_t PendingPlanned(uint64_t generation) const;
  // True when `generation` must be left at once.
  bool Superseded(uint64_t generation) const;
  bool stop_requested() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> interrupt_;
  std::optional<wire::Membership> newest_;
  // Newest generation that followed a death; generations below it are dead.
  uint64_t newest_after_failure_ = 0;
  bool stop_requested_ = false;
  bool closed_ = false;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_RECOVERY_MEMBERSHIP_MAILBOX_H_
