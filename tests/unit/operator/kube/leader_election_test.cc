#include "operator/kube/leader_election.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "tests/support/await.h"
#include "tests/support/fake_rest_client.h"

namespace everstep::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// ---- The decision ----

class ElectionStateTest : public testing::Test {
 protected:
  std::optional<OrderedJson> Decide(ElectionState& candidate) {
    auto spec = candidate.Decide(lease_, now_, wall_);
    if (!spec) return spec;
    lease_ = *spec;
    candidate.Written(now_);
    return spec;
  }

  OrderedJson lease_;  // null: there is none
  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  WallTime wall_{std::chrono::hours(1)};
  ElectionState a_{"a", {}}, b_{"b", {}};
};

TEST_F(ElectionStateTest, TheFirstTakesItAndTheOtherWaits) {
  ASSERT_TRUE(Decide(a_).has_value());
  EXPECT_TRUE(a_.leading());
  EXPECT_EQ(lease_["holderIdentity"], "a");
  EXPECT_EQ(lease_["leaseDurationSeconds"], 15);
  EXPECT_EQ(lease_["leaseTransitions"], 0);
  EXPECT_FALSE(Decide(b_).has_value());
  EXPECT_FALSE(b_.leading());
}

TEST_F(ElectionStateTest, ALeaseThatIsRenewedIsNeverTaken) {
  Decide(a_);
  const OrderedJson acquired = lease_["acquireTime"];
  for (int i = 0; i < 50; ++i) {
    now_ += seconds(2);
    wall_ += seconds(2);
    ASSERT_TRUE(Decide(a_).has_value());
    ASSERT_FALSE(Decide(b_).has_value());
  }
  EXPECT_EQ(lease_["acquireTime"], acquired);
  EXPECT_NE(lease_["renewTime"], acquired);
}

TEST_F(ElectionStateTest, ALeaseThatIsNotRenewedIsTakenWhenItIsOver) {
  Decide(a_);
  Decide(b_);
  now_ += milliseconds(14'999);
  EXPECT_FALSE(Decide(b_).has_value());
  now_ += milliseconds(1);
  ASSERT_TRUE(Decide(b_).has_value());
  EXPECT_EQ(lease_["leaseTransitions"], 1);
  // The other learns that it leads no more.
  EXPECT_FALSE(Decide(a_).has_value());
  EXPECT_FALSE(a_.leading());
}

// The record's own times may be wrong by hours: they come from the other machine's clock.
TEST_F(ElectionStateTest, OnlyOnesOwnClockCounts) {
  wall_ -= std::chrono::hours(500);
  Decide(a_);
  wall_ += std::chrono::hours(1000);
  EXPECT_FALSE(Decide(b_).has_value());
  now_ += seconds(15);
  EXPECT_TRUE(Decide(b_).has_value());
}

TEST_F(ElectionStateTest, ALeaderStopsBeforeAnotherMayBegin) {
  Decide(a_);
  Decide(b_);
  now_ += seconds(10);
  EXPECT_TRUE(a_.IsOverdue(now_));
  EXPECT_FALSE(Decide(b_).has_value());
  EXPECT_FALSE(b_.IsOverdue(now_));
}

TEST_F(ElectionStateTest, WhatIsGivenUpCanBeTakenAtOnce) {
  Decide(a_);
  Decide(b_);
  EXPECT_FALSE(b_.Release(lease_, wall_).has_value());
  lease_ = *a_.Release(lease_, wall_);
  EXPECT_TRUE(Decide(b_).has_value());
  EXPECT_EQ(lease_["holderIdentity"], "b");
}

TEST_F(ElectionStateTest, OneThatStartsAnewUnderItsOldNameGoesOn) {
  Decide(a_);
  ElectionState again("a", {});
  EXPECT_TRUE(Decide(again).has_value());
  EXPECT_EQ(lease_["leaseTransitions"], 0);
}

// ---- With threads ----

constexpr ElectionTimes kQuick{
    .lease = seconds(1), .renew_deadline = milliseconds(700), .retry = milliseconds(20)};

class LeaderElectionTest : public testing::Test {
 protected:
  std::unique_ptr<LeaderElection> Candidate(const std::string& name) {
    return std::make_unique<LeaderElection>(
        LeaderElection::Options{.lease = {"system", "operator"}, .identity = name, .times = kQuick},
        client_, clock_, [this] { ++lost_; });
  }
  std::string Holder() {
    const auto lease = client_.Get(kLeases, {"system", "operator"});
    return lease ? (*lease)["spec"]["holderIdentity"].get<std::string>() : "(none)";
  }

  SystemClock clock_;
  FakeRestClient client_;
  std::atomic<int> lost_ = 0;
};

TEST_F(LeaderElectionTest, AnotherTakesOverAtOnceWhenTheLeaderStops) {
  auto a = Candidate("a");
  ASSERT_TRUE(a->AwaitLeadership());
  auto b = Candidate("b");
  EXPECT_EQ(Holder(), "a");
  a->Stop();
  ASSERT_TRUE(b->AwaitLeadership());
  EXPECT_EQ(Holder(), "b");
  EXPECT_EQ(lost_, 0);
}

TEST_F(LeaderElectionTest, OneThatIsStoppedWhileItWaitsLeadsNever) {
  auto a = Candidate("a");
  ASSERT_TRUE(a->AwaitLeadership());
  auto b = Candidate("b");
  b->Stop();
  EXPECT_FALSE(b->AwaitLeadership());
}

TEST_F(LeaderElectionTest, ALeaderWithoutItsApiServerIsLostOnce) {
  auto a = Candidate("a");
  ASSERT_TRUE(a->AwaitLeadership());
  client_.SetIntercept([](const std::string&) -> Status { return Unavailable("away"); });
  EXPECT_TRUE(AwaitTrue([&] { return lost_ == 1; }));
  client_.SetIntercept(nullptr);
  auto b = Candidate("b");
  EXPECT_TRUE(b->AwaitLeadership());
  EXPECT_EQ(lost_, 1);
}

TEST_F(LeaderElectionTest, ALeaseTakenByForceIsLost) {
  auto a = Candidate("a");
  ASSERT_TRUE(a->AwaitLeadership());
  OrderedJson lease;
  ASSERT_TRUE(AwaitTrue([&] {
    lease = *client_.Get(kLeases, {"system", "operator"});
    lease["spec"]["holderIdentity"] = "b";
    lease["spec"]["leaseDurationSeconds"] = 3600;
    return client_.Update(kLeases, lease).has_value();
  }));
  EXPECT_TRUE(AwaitTrue([&] { return lost_ == 1; }));
}

}  // namespace
}  // namespace everstep::kube
