#include "operator/core/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace everstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Feeds failures to the policy one after the other, as the controller does.
class RecoveryTest : public testing::Test {
 protected:
  RecoveryPlan Fail(Failure failure) {
    RecoveryPlan plan = PlanRecovery(policy_, history_, failure, now_);
    history_ = plan.history;
    return plan;
  }
  // Rank 1 dies of a signal after `step` steps, in a generation of its own.
  RecoveryPlan Killed(int64_t step, int rank = 1) {
    return Fail({.rank = rank, .regrouped = ++generation_, .step = step});
  }

  RecoverySpec policy_;
  RecoveryHistory history_;
  int64_t now_ = 1'000'000;
  uint64_t generation_ = 0;
};

TEST_F(RecoveryTest, TheFirstFailureIsRestartedInPlaceAtOnce) {
  const RecoveryPlan plan = Killed(7);
  EXPECT_EQ(plan.action, RecoveryAction::kRestartInPlace);
  EXPECT_EQ(plan.delay_seconds, 0);
  EXPECT_EQ(plan.reason, "rank 1 is restarted in place (restart 1 of 10 within 6:00:00)");
  EXPECT_EQ(plan.history.total, 1);
  EXPECT_EQ(plan.history.in_place, 1);
  EXPECT_EQ(plan.history.recreated, 0);
  EXPECT_THAT(plan.history.charged_unix_seconds, ElementsAre(now_));
}

TEST_F(RecoveryTest, ALostPodIsReplaced) {
  const RecoveryPlan plan = Fail({.rank = 1, .pod_alive = false, .step = 7});
  EXPECT_EQ(plan.action, RecoveryAction::kReplacePod);
  EXPECT_EQ(plan.reason, "rank 1 lost its pod: it is replaced (restart 1 of 10 within 6:00:00)");
  EXPECT_EQ(plan.history.recreated, 1);
}

TEST_F(RecoveryTest, AVictimIsNotCharged) {
  const RecoveryPlan in_place = Fail({.rank = 2, .victim = true, .exited = true, .exit_code = 1});
  EXPECT_EQ(in_place.action, RecoveryAction::kRestartInPlace);
  EXPECT_EQ(in_place.delay_seconds, 0);
  EXPECT_THAT(in_place.reason, HasSubstr("not charged"));
  const RecoveryPlan replaced = Fail({.rank = 2, .pod_alive = false, .victim = true});
  EXPECT_EQ(replaced.action, RecoveryAction::kReplacePod);
  EXPECT_EQ(history_.total, 0);
  EXPECT_TRUE(history_.charged_unix_seconds.empty());
}

TEST_F(RecoveryTest, AVictimLeavesTheHistoryOfOthersAlone) {
  Killed(7);
  const std::string before = DumpJson(history_.ToJson());
  Fail({.rank = 2, .victim = true, .step = 7});
  EXPECT_EQ(DumpJson(history_.ToJson()), before);
}

TEST_F(RecoveryTest, AFatalExitCodeFailsTheJobAtOnce) {
  const RecoveryPlan plan = Fail({.rank = 3, .exited = true, .exit_code = 2});
  EXPECT_EQ(plan.action, RecoveryAction::kFail);
  EXPECT_EQ(plan.reason, "rank 3 exited with code 2, which a restart does not cure");
  EXPECT_EQ(plan.history.total, 0);
}

TEST_F(RecoveryTest, ACodeThatIsNotFatalAndASignalAreRestarted) {
  EXPECT_EQ(Fail({.rank = 3, .exited = true, .exit_code = 1}).action,
            RecoveryAction::kRestartInPlace);
  policy_.fatal_exit_codes = {};
  EXPECT_EQ(Fail({.rank = 3, .exited = true, .exit_code = 2, .step = 9}).action,
            RecoveryAction::kRestartInPlace);
  // Only an exit has a code.
  policy_.fatal_exit_codes = {2};
  EXPECT_EQ(Fail({.rank = 3, .exited = false, .exit_code = 2, .step = 10}).action,
            RecoveryAction::kRestartInPlace);
}

TEST_F(RecoveryTest, TheSameStepFailsTheJobWhenItFailsTooOften) {
  for (int i = 0; i < policy_.max_no_progress; ++i) {
    EXPECT_NE(Killed(41).action, RecoveryAction::kFail) << i;
  }
  const RecoveryPlan plan = Killed(41, 2);
  EXPECT_EQ(plan.action, RecoveryAction::kFail);
  EXPECT_EQ(plan.reason, "step 42 failed 4 times in a row (rank 2 last)");
}

TEST_F(RecoveryTest, RanksThatDieTogetherEndOneAttempt) {
  for (int rank = 0; rank < 8; ++rank) {
    const RecoveryPlan plan = Fail({.rank = rank, .regrouped = 3, .step = 41});
    EXPECT_EQ(plan.action, RecoveryAction::kRestartInPlace) << rank;
    EXPECT_EQ(plan.history.no_progress, 1);
  }
  EXPECT_EQ(Fail({.rank = 0, .regrouped = 4, .step = 41}).history.no_progress, 2);
}

TEST_F(RecoveryTest, ARankThatFailsBeforeItJoinsFailsTheJobInTheEnd) {
  const auto start_fails = [&](int rank) {
    return Fail({.rank = rank, .pod_alive = false, .regrouped = 0, .step = 0});
  };
  // All of them as often as may be, then one of them once more.
  for (int i = 0; i < policy_.max_no_progress; ++i) {
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(start_fails(rank).action, RecoveryAction::kReplacePod) << i << " " << rank;
    }
  }
  EXPECT_EQ(history_.no_progress, 3);
  EXPECT_EQ(start_fails(2).action, RecoveryAction::kFail);
}

TEST_F(RecoveryTest, ProgressForgivesFailuresInARow) {
  for (int64_t step = 0; step < 9; ++step) {
    const RecoveryPlan plan = Killed(step);
    EXPECT_EQ(plan.action, RecoveryAction::kRestartInPlace) << step;
    EXPECT_EQ(plan.delay_seconds, 0) << step;
    EXPECT_EQ(plan.history.no_progress, 1);
  }
}

TEST_F(RecoveryTest, WithoutProgressItWaitsTwiceAsLongEachTime) {
  policy_.max_no_progress = 100;
  policy_.max_restarts = 100;
  policy_.in_place_before_recreate = 100;
  policy_.backoff_initial_seconds = 2;
  policy_.backoff_max_seconds = 10;
  std::vector<double> delays;
  for (int i = 0; i < 6; ++i) delays.push_back(Killed(5).delay_seconds);
  EXPECT_THAT(delays, ElementsAre(0, 2, 4, 8, 10, 10));
  EXPECT_EQ(Killed(6).delay_seconds, 0);
}

TEST_F(RecoveryTest, AVeryLongRowStaysWithinTheBound) {
  policy_.max_no_progress = 1000;
  policy_.max_restarts = 100000;
  RecoveryPlan plan;
  for (int i = 0; i < 500; ++i) plan = Killed(5);
  EXPECT_EQ(plan.delay_seconds, policy_.backoff_max_seconds);
}

TEST_F(RecoveryTest, APodIsReplacedWhenItsRankKeepsFailingInPlace) {
  policy_.max_no_progress = 100;
  policy_.in_place_before_recreate = 2;
  EXPECT_EQ(Killed(5).action, RecoveryAction::kRestartInPlace);
  EXPECT_EQ(Killed(5).action, RecoveryAction::kRestartInPlace);
  // Another rank has a count of its own.
  EXPECT_EQ(Killed(5, 0).action, RecoveryAction::kRestartInPlace);
  const RecoveryPlan plan = Killed(5);
  EXPECT_EQ(plan.action, RecoveryAction::kReplacePod);
  EXPECT_THAT(plan.reason, HasSubstr("rank 1 kept failing in place: its pod is replaced"));
  // The new pod starts afresh.
  EXPECT_EQ(Killed(5).action, RecoveryAction::kRestartInPlace);
}

TEST_F(RecoveryTest, ZeroInPlaceMeansAlwaysANewPod) {
  policy_.in_place_before_recreate = 0;
  EXPECT_EQ(Killed(5).action, RecoveryAction::kReplacePod);
}

TEST_F(RecoveryTest, ARankThatNeverJoinsIsNotForgivenByTheOthersProgress) {
  policy_.max_restarts = 100;
  policy_.in_place_before_recreate = 3;
  const auto start_fails = [&](int64_t step) {
    return Fail({.rank = 1, .joined = false, .exited = true, .exit_code = 1, .step = step});
  };
  EXPECT_EQ(start_fails(10).delay_seconds, 0);
  EXPECT_EQ(start_fails(20).delay_seconds, 1);
  EXPECT_EQ(start_fails(30).delay_seconds, 2);
  EXPECT_EQ(start_fails(40).action, RecoveryAction::kReplacePod);
}

TEST_F(RecoveryTest, TheBudgetIsForAWindow) {
  policy_.max_restarts = 2;
  policy_.window_seconds = 60;
  EXPECT_NE(Killed(1).action, RecoveryAction::kFail);
  now_ += 30;
  EXPECT_NE(Killed(2).action, RecoveryAction::kFail);
  RecoveryPlan too_many = PlanRecovery(policy_, history_, {.rank = 1, .step = 3}, now_ + 29);
  EXPECT_EQ(too_many.action, RecoveryAction::kFail);
  EXPECT_EQ(too_many.reason,
            "more than 2 restarts within 0:01:00 without a checkpoint between: raise "
            "spec.recovery.maxRestarts or find the cause");
  // A second later the first one has left the window.
  now_ += 30;
  const RecoveryPlan plan = Killed(3);
  EXPECT_EQ(plan.action, RecoveryAction::kRestartInPlace);
  EXPECT_THAT(plan.reason, HasSubstr("restart 2 of 2"));
}

TEST_F(RecoveryTest, ACheckpointPastTheLastFailureRefundsEveryCharge) {
  policy_.max_restarts = 2;
  Killed(10);
  Killed(12);
  const RecoveryPlan plan = Fail({.rank = 1, .step = 20, .durable_step = 15});
  EXPECT_EQ(plan.action, RecoveryAction::kRestartInPlace);
  EXPECT_THAT(plan.reason, HasSubstr("restart 1 of 2"));
  EXPECT_EQ(plan.history.total, 3);
}

TEST_F(RecoveryTest, AnOlderCheckpointRefundsNothing) {
  policy_.max_restarts = 2;
  Killed(10);
  Killed(12);
  EXPECT_EQ(Fail({.rank = 1, .step = 20, .durable_step = 12}).action, RecoveryAction::kFail);
}

TEST_F(RecoveryTest, NoRestartsAtAllCanBeAskedFor) {
  policy_.max_restarts = 0;
  EXPECT_EQ(Killed(1).action, RecoveryAction::kFail);
}

TEST_F(RecoveryTest, TheHistorySurvivesTheStatus) {
  policy_.max_no_progress = 100;
  Killed(5);
  Killed(5);
  Killed(5, 12);
  Fail({.rank = 3, .pod_alive = false, .step = 5});
  const OrderedJson json = history_.ToJson();
  EXPECT_EQ(json["inWindow"], 4);
  const RecoveryHistory back = RecoveryHistory::FromJson(json);
  EXPECT_EQ(DumpJson(back.ToJson()), DumpJson(json));
  EXPECT_EQ(back.in_place_in_a_row.at(12), 1);
  EXPECT_EQ(back.last_step, 5);
}

TEST_F(RecoveryTest, NoHistoryIsAnEmptyOne) {
  for (const OrderedJson& json : {OrderedJson(), OrderedJson::object()}) {
    const RecoveryHistory history = RecoveryHistory::FromJson(json);
    EXPECT_EQ(history.last_step, -1);
    EXPECT_EQ(history.total, 0);
  }
}

}  // namespace
}  // namespace everstep
