// Which of several operators acts: the holder of a Lease object, which it renews. The others wait
// until nobody has renewed it for as long as it lasts, by their own clocks: what the record says of
// time comes from another machine's.
//
// Not a fence: a leader that was suspended may act for a moment after another took over. What must
// not happen twice is written with the object's resourceVersion.
#ifndef EVERSTEP_OPERATOR_KUBE_LEADER_ELECTION_H_
#define EVERSTEP_OPERATOR_KUBE_LEADER_ELECTION_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/clock.h"
#include "operator/kube/rest_client.h"

namespace everstep::kube {

struct ElectionTimes {
  Duration lease = std::chrono::seconds(15);  // others wait that long after the last renewal
  Duration renew_deadline = std::chrono::seconds(10);  // a leader that cannot renew in this, stops
  Duration retry = std::chrono::seconds(2);
};

// One candidate's view, without I/O: it is told what the Lease holds and says what to write.
class ElectionState {
 public:
  ElectionState(std::string identity, ElectionTimes times)
      : identity_(std::move(identity)), times_(times) {}

  // The spec to write now; nothing: somebody else holds it. `spec` is null where there is no Lease.
  std::optional<OrderedJson> Decide(const OrderedJson& spec, TimePoint now, WallTime wall_now);
  // It was written.
  void Written(TimePoint now);
  // The spec that gives it up at once, if it is ours.
  std::optional<OrderedJson> Release(const OrderedJson& spec, WallTime wall_now) const;

  bool leading() const { return leading_; }
  // Leading, but too long without a renewal: others may take over soon.
  bool IsOverdue(TimePoint now) const;
  const std::string& identity() const { return identity_; }

 private:
  const std::string identity_;
  const ElectionTimes times_;
  bool leading_ = false;
  TimePoint renewed_at_{};
  OrderedJson seen_;  // the record as it was seen to change last
  TimePoint seen_at_{};
};

class LeaderElection {
 public:
  struct Options {
    ObjectRef lease;
    std::string identity;
    ElectionTimes times = {};
  };

  // Everything is borrowed. `on_lost` is called once at most, and not after Stop(): the program
  // should exit then, since another may be acting already.
  LeaderElection(const Options& options, RestClient& client, const Clock& clock,
                 std::function<void()> on_lost);
  ~LeaderElection();
  LeaderElection(const LeaderElection&) = delete;
  LeaderElection& operator=(const LeaderElection&) = delete;

  // Waits until this one leads; false when it was stopped before.
  bool AwaitLeadership();
  bool IsLeading();
  // Gives the Lease up, so that another need not wait.
  void Stop();

 private:
  void Run();
  Status Round();
  void GiveUp();

  const Options options_;
  RestClient& client_;
  const Clock& clock_;
  const std::function<void()> on_lost_;
  std::mutex mutex_;
  std::condition_variable changed_;
  ElectionState state_;  // the thread's own, but for leading_
  bool leading_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace everstep::kube

#endif  // EVERSTEP_OPERATOR_KUBE_LEADER_ELECTION_H_
