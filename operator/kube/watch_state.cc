#include "operator/kube/watch_state.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace everstep::kube {
namespace {

constexpr int kMaxDoublings = 10;

}  // namespace

WatchState::Step WatchState::Next() {
  if (pause_) return PauseFor{*std::exchange(pause_, std::nullopt)};
  if (version_.empty()) return ListNext{more_};
  const int spread = static_cast<int>(random_() * (kTimeoutSpread + 1));
  return FollowFrom{version_, kTimeoutSeconds + std::min(spread, kTimeoutSpread)};
}

void WatchState::Relist() {
  version_.clear();
  more_.clear();
  pages_.clear();
}

std::optional<WatchState::Change> WatchState::OnPage(ListPage page) {
  std::move(page.items.begin(), page.items.end(), std::back_inserter(pages_));
  more_ = page.more;
  if (!more_.empty()) return std::nullopt;
  version_ = page.resource_version;
  synced_ = true;
  return Listed{std::exchange(pages_, {}), version_};
}

Result<std::optional<WatchState::Change>> WatchState::OnLine(const std::string& line,
                                                             TimePoint now) {
  const auto broken = [&](const std::string& what) {
    const Error error{ErrorCode::kUnavailable, what};
    OnError(error, std::nullopt, now);
    return tl::unexpected(error);
  };
  auto event = ParseOrderedJson(line, "watch");
  if (!event || !event->is_object() || !event->contains("object")) {
    return broken("a line of the watch is no event");
  }
  OrderedJson& object = (*event)["object"];
  const std::string type = event->value("type", "");
  if (type == "ERROR") {
    const Error error = ErrorOf({.status = object.value("code", 500), .body = DumpJson(object)});
    OnError(error, std::nullopt, now);
    return tl::unexpected(error);
  }
  const OrderedJson metadata = object.value("metadata", OrderedJson::object());
  const std::string version = metadata.value("resourceVersion", "");
  if (version.empty()) return broken("an object of the watch has no resourceVersion");
  version_ = version;
  if (type == "BOOKMARK") return std::nullopt;
  if (!metadata.contains("name")) return broken("an object of the watch has no name");
  if (type == "DELETED") return Removed{std::move(object)};
  return Changed{std::move(object)};
}

void WatchState::OnError(const Error& error, std::optional<Duration> retry_after, TimePoint now) {
  if (error.code == ErrorCode::kAborted) {
    // Too old: also in the middle of a list.
    const bool listing = version_.empty();
    Relist();
    if (!listing) return;
  } else if (version_.empty()) {
    Relist();
  }
  pause_ = retry_after.value_or(NextPause(now));
}

Duration WatchState::NextPause(TimePoint now) {
  if (now - last_error_ > kForgiveAfter) errors_ = 0;
  last_error_ = now;
  const double longest = std::min(
      Seconds(kLastPause), std::ldexp(Seconds(kFirstPause), std::min(errors_++, kMaxDoublings)));
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(longest * random_()));
}

}  // namespace everstep::kube
