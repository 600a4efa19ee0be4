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
  if (!event || !event->is_object() || !event->contains("object") ||
      !(*event)["object"].is_object() || !event->contains("type")) {
    return broken("a line of the watch is no event");
  }
  OrderedJson& object = (*event)["object"];
  const OrderedJson& type = (*event)["type"];
  if (type == "ERROR") {
    const bool has_code = object.contains("code") && object["code"].is_number_integer();
    const Error error =
        ErrorOf({.status = has_code ? object["code"].get<int>() : 500, .body = DumpJson(object)});
    OnError(error, std::nullopt, now);
    return tl::unexpected(error);
  }
  if (type == "BOOKMARK") {
    // It has no name, and nothing else that would be looked at.
    const auto version = nlohmann::json_pointer<std::string>("/metadata/resourceVersion");
    if (!object.contains(version) || !object[version].is_string()) {
      return broken("a bookmark of the watch has no resourceVersion");
    }
    version_ = object[version].get<std::string>();
    return std::nullopt;
  }
  if (!IsWellFormed(object)) return broken("an object of the watch has no name or version");
  version_ = object["metadata"]["resourceVersion"].get<std::string>();
  if (type == "DELETED") return Removed{std::move(object)};
  return Changed{std::move(object)};
}

void WatchState::OnError(const Error& error, std::optional<Duration> retry_after, TimePoint now) {
  if (error.code == ErrorCode::kAborted) {
    // Too old: also in the middle of a list. What helps once at once, is not tried without a pause
    // again and again: lists are dear.
    const bool first = errors_ == 0 || now - last_error_ > kForgiveAfter;
    const bool listing = version_.empty();
    Relist();
    if (!listing && first) {
      NextPause(now);
      return;
    }
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
