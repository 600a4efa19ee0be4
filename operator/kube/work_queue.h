// The keys of what has to be looked at, for several threads: each key once, however often it was
// added, and never with two threads at a time.
#ifndef EVERSTEP_OPERATOR_KUBE_WORK_QUEUE_H_
#define EVERSTEP_OPERATOR_KUBE_WORK_QUEUE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "common/clock.h"

namespace everstep {

// Thread-safe.
class WorkQueue {
 public:
  struct Options {
    // A key that fails n times in a row waits first_delay * 2^(n-1), last_delay at most; and all
    // failing keys together come back no faster than per_second, after a burst.
    Duration first_delay = std::chrono::milliseconds(5);
    Duration last_delay = std::chrono::seconds(1000);
    double per_second = 10;
    double burst = 100;
  };
  struct Figures {
    size_t depth = 0;       // keys ready to be taken
    uint64_t added = 0;     // calls that made a key ready or will
    uint64_t retried = 0;   // AddAfterFailure()
    Duration unfinished{};  // together, of the keys that are being worked on
    Duration longest{};     // of them
  };

  // `clock` is borrowed. Whoever moves a ManualClock calls Wake().
  WorkQueue(const Options& options, const Clock& clock);

  // To be taken now. One that is being worked on is taken again when that is done.
  void Add(const std::string& key);
  // To be taken after `delay`. Of several times the earliest counts.
  void AddAfter(const std::string& key, Duration delay);
  // To be taken after as long as its failures in a row demand.
  void AddAfterFailure(const std::string& key);
  // Ends its row of failures.
  void Forget(const std::string& key);

  // The next key, in the order in which they became ready; waits for one. Nothing when the queue
  // has ended. Every key that was got is given back with Done().
  std::optional<std::string> Get();
  // The next key that is ready at once.
  std::optional<std::string> TryGet();
  void Done(const std::string& key);

  // Get() returns nothing from now on.
  void End();
  void Wake();
  Figures figures() const;

 private:
  void Ready(const std::string& key);
  void Schedule(const std::string& key, TimePoint at);
  void PromoteDue();
  std::optional<std::string> Take();
  Duration FailureDelay(const std::string& key);

  const Options options_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> ready_;
  std::set<std::string> dirty_;               // in ready_, or busy and to be taken again
  std::map<std::string, TimePoint> busy_;     // since when
  std::map<std::string, TimePoint> waiting_;  // until when
  std::map<std::string, int> failures_;
  double tokens_;
  TimePoint tokens_at_;
  uint64_t added_ = 0;
  uint64_t retried_ = 0;
  bool ended_ = false;
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_KUBE_WORK_QUEUE_H_
