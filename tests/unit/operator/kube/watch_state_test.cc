#include "operator/kube/watch_state.h"

#include <gtest/gtest.h>

namespace everstep::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class WatchStateTest : public testing::Test {
 protected:
  ListPage Page(const std::string& version, const std::string& more = "") {
    return {.items = {{{"metadata", {{"name", "a"}}}}}, .resource_version = version, .more = more};
  }
  void List(const std::string& version) { ASSERT_TRUE(state_.OnPage(Page(version)).has_value()); }
  Result<std::optional<WatchState::Change>> Line(const std::string& text) {
    return state_.OnLine(text, now_);
  }
  void Fail(ErrorCode code, std::optional<Duration> retry_after = {}) {
    state_.OnError({code, "away"}, retry_after, now_);
  }
  template <typename T>
  T Next() {
    const WatchState::Step step = state_.Next();
    EXPECT_TRUE(std::holds_alternative<T>(step)) << step.index();
    return std::holds_alternative<T>(step) ? std::get<T>(step) : T{};
  }

  double fraction_ = 0.999999;
  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  WatchState state_{[this] { return fraction_; }};
};

TEST_F(WatchStateTest, ListsPageByPageAndFollowsFromTheListsVersion) {
  EXPECT_EQ(Next<WatchState::ListNext>().more, "");
  EXPECT_FALSE(state_.OnPage(Page("7", "next")).has_value());
  EXPECT_FALSE(state_.synced());
  EXPECT_EQ(Next<WatchState::ListNext>().more, "next");
  const auto change = state_.OnPage(Page("7"));
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(std::get<WatchState::Listed>(*change).objects.size(), 2u);
  EXPECT_EQ(std::get<WatchState::Listed>(*change).resource_version, "7");
  EXPECT_TRUE(state_.synced());
  EXPECT_EQ(Next<WatchState::FollowFrom>().resource_version, "7");
}

TEST_F(WatchStateTest, NotAllWatchesEndAtTheSameTime) {
  List("7");
  fraction_ = 0;
  EXPECT_EQ(Next<WatchState::FollowFrom>().timeout_seconds, 290);
  fraction_ = 0.999999;
  EXPECT_EQ(Next<WatchState::FollowFrom>().timeout_seconds, 295);
}

TEST_F(WatchStateTest, EventsAndBookmarksMoveTheVersion) {
  List("7");
  const auto added =
      Line(R"({"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"8"}}})");
  ASSERT_TRUE(added.has_value() && added->has_value());
  EXPECT_EQ(std::get<WatchState::Changed>(**added).object["metadata"]["name"], "b");
  const auto removed =
      Line(R"({"type":"DELETED","object":{"metadata":{"name":"b","resourceVersion":"9"}}})");
  ASSERT_TRUE(removed.has_value() && removed->has_value());
  EXPECT_TRUE(std::holds_alternative<WatchState::Removed>(**removed));
  EXPECT_EQ(Next<WatchState::FollowFrom>().resource_version, "9");
  const auto bookmark =
      Line(R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"20"}}})");
  ASSERT_TRUE(bookmark.has_value());
  EXPECT_FALSE(bookmark->has_value());
  EXPECT_EQ(Next<WatchState::FollowFrom>().resource_version, "20");
}

TEST_F(WatchStateTest, AnEndInOrderIsFollowedOnAtOnce) {
  List("7");
  state_.OnEnd();
  EXPECT_EQ(Next<WatchState::FollowFrom>().resource_version, "7");
}

TEST_F(WatchStateTest, AVersionThatIsTooOldIsListedAnewAtOnce) {
  List("7");
  Fail(ErrorCode::kAborted);
  EXPECT_EQ(Next<WatchState::ListNext>().more, "");

  List("9");
  now_ += minutes(3);
  const auto event =
      Line(R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}})");
  ASSERT_FALSE(event.has_value());
  EXPECT_EQ(event.error().code, ErrorCode::kAborted);
  EXPECT_EQ(Next<WatchState::ListNext>().more, "");
}

TEST_F(WatchStateTest, AVersionThatIsAlwaysTooOldIsListedWithPauses) {
  List("7");
  Fail(ErrorCode::kAborted);
  for (const int wanted : {1600, 3200}) {
    List("7");
    Fail(ErrorCode::kAborted);
    EXPECT_NEAR(Milliseconds(Next<WatchState::PauseFor>().time), wanted, 1);
    EXPECT_EQ(Next<WatchState::ListNext>().more, "");
  }
}

TEST_F(WatchStateTest, AListWhosePagesExpireStartsOverAfterAPause) {
  state_.OnPage(Page("7", "next"));
  Fail(ErrorCode::kAborted);
  Next<WatchState::PauseFor>();
  EXPECT_EQ(Next<WatchState::ListNext>().more, "");
  const auto change = state_.OnPage(Page("8"));
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(std::get<WatchState::Listed>(*change).objects.size(), 1u);
}

TEST_F(WatchStateTest, ErrorsAreWaitedOutTwiceAsLongEachTime) {
  List("7");
  for (const int wanted : {800, 1600, 3200, 6400, 12800, 25600, 30000, 30000}) {
    Fail(ErrorCode::kUnavailable);
    const Duration pause = Next<WatchState::PauseFor>().time;
    EXPECT_NEAR(Milliseconds(pause), wanted, 1) << wanted;
    // From where it was.
    EXPECT_EQ(Next<WatchState::FollowFrom>().resource_version, "7");
  }
  now_ += minutes(3);
  Fail(ErrorCode::kUnavailable);
  EXPECT_NEAR(Milliseconds(Next<WatchState::PauseFor>().time), 800, 1);
}

TEST_F(WatchStateTest, ThePauseIsADrawnPartOfTheLongest) {
  fraction_ = 0.25;
  List("7");
  Fail(ErrorCode::kUnavailable);
  EXPECT_NEAR(Milliseconds(Next<WatchState::PauseFor>().time), 200, 1);
}

TEST_F(WatchStateTest, AServerThatSaysWhenIsBelieved) {
  List("7");
  Fail(ErrorCode::kUnavailable, seconds(3));
  EXPECT_EQ(Next<WatchState::PauseFor>().time, seconds(3));
  EXPECT_EQ(Next<WatchState::FollowFrom>().resource_version, "7");
}

TEST_F(WatchStateTest, WhatIsNoEventEndsTheStreamAndLosesNothing) {
  List("7");
  for (const char* line :
       {"", "{", "[]", R"({"type":"ADDED"})", R"({"type":"ADDED","object":{}})",
        R"({"type":"ADDED","object":{"metadata":{"resourceVersion":"8"}}})",
        R"({"type":"ADDED","object":"x"})", R"({"type":"ADDED","object":{"metadata":"x"}})",
        R"({"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":8}}})",
        R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":8}}})",
        R"({"type":3,"object":{}})",
        R"({"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":""}}})",
        R"({"type":"ERROR","object":{"code":"x"}})", R"({"type":"ERROR","object":7})"}) {
    EXPECT_FALSE(Line(line).has_value()) << line;
    Next<WatchState::PauseFor>();
    Next<WatchState::FollowFrom>();
  }
}

}  // namespace
}  // namespace everstep::kube
