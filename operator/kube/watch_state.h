// What a watch does next: list, follow, or wait. Pure: it is told what came and says what to ask
// for; randomness and time are parameters.
//
//   list (page by page) --> follow from the list's version --> the stream ends --> follow on
//     ^                                                              |
//     +-------------- the version is too old (410, ERROR event) <----+
//
// Errors are waited out, twice as long each time, with full jitter.
#ifndef EVERSTEP_OPERATOR_KUBE_WATCH_STATE_H_
#define EVERSTEP_OPERATOR_KUBE_WATCH_STATE_H_

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "common/result.h"
#include "operator/kube/api_client.h"

namespace everstep::kube {

class WatchState {
 public:
  static constexpr std::chrono::milliseconds kFirstPause{800};
  static constexpr std::chrono::seconds kLastPause{30};
  // After this long without an error the next one is the first again.
  static constexpr std::chrono::minutes kForgiveAfter{2};
  // The server ends a watch after 290 to 295 s: not all at once.
  static constexpr int kTimeoutSeconds = 290, kTimeoutSpread = 5;

  struct ListNext {
    std::string more;  // which page; "" the first
  };
  struct FollowFrom {
    std::string resource_version;
    int timeout_seconds = kTimeoutSeconds;
  };
  struct PauseFor {
    Duration time;
  };
  using Step = std::variant<ListNext, FollowFrom, PauseFor>;

  struct Changed {
    OrderedJson object;
  };
  struct Removed {
    OrderedJson object;
  };
  struct Listed {
    std::vector<OrderedJson> objects;
    std::string resource_version;
  };
  using Change = std::variant<Changed, Removed, Listed>;

  // `random` returns a number in [0, 1).
  explicit WatchState(std::function<double()> random) : random_(std::move(random)) {}

  Step Next();
  // The list is complete with its last page.
  std::optional<Change> OnPage(ListPage page);
  // One line of the stream. An error: the stream is of no more use (Next() says how to go on).
  Result<std::optional<Change>> OnLine(const std::string& line, TimePoint now);
  // The server ended the stream in order.
  void OnEnd() {}
  void OnError(const Error& error, std::optional<Duration> retry_after, TimePoint now);

  // At least one list was complete.
  bool synced() const { return synced_; }

 private:
  Duration NextPause(TimePoint now);
  void Relist();

  const std::function<double()> random_;
  std::string version_;  // followed from here; "": list first
  std::string more_;
  std::vector<OrderedJson> pages_;
  bool synced_ = false;
  std::optional<Duration> pause_;
  int errors_ = 0;
  TimePoint last_error_{};
};

}  // namespace everstep::kube

#endif  // EVERSTEP_OPERATOR_KUBE_WATCH_STATE_H_
