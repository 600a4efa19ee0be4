// The claim: whatever is killed, the final weights are bit for bit those of an undisturbed run.
// One case of each kind here; EVERSTEP_RECOVERY_SEEDS=10 (make test-recovery) makes it the sweep.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/e2e/job_runner.h"

namespace everstep::testing {
namespace {

int Seeds() {
  const char* text = std::getenv("EVERSTEP_RECOVERY_SEEDS");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

struct Case {
  std::string finetuning;
  int ranks;
};

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return info.param.finetuning + std::to_string(info.param.ranks);
}

class RecoveryTest : public ::testing::TestWithParam<Case> {
 protected:
  JobShape Shape() const {
    JobShape shape;
    shape.finetuning = GetParam().finetuning;
    shape.ranks = GetParam().ranks;
    return shape;
  }

  // A moment that differs per seed: after a random step, plus up to 80 ms.
  void WaitForRandomMoment(JobRunner& runner, std::mt19937& random) const {
    const int step = std::uniform_int_distribution<int>(1, Shape().steps - 6)(random);
    ASSERT_TRUE(runner.WaitForStep(step)) << runner.Output();
    std::this_thread::sleep_for(
        std::chrono::milliseconds(std::uniform_int_distribution<int>(0, 80)(random)));
  }
};

TEST_P(RecoveryTest, KilledRankCostsNoStepAndNoBit) {
  for (int seed = 0; seed < Seeds(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(static_cast<unsigned>(seed * 7919 + GetParam().ranks));
    JobRunner runner(Shape());
    runner.Start();
    WaitForRandomMoment(runner, random);
    const auto workers = runner.Workers();
    ASSERT_FALSE(workers.empty());
    auto victim = workers.begin();
    std::advance(victim, static_cast<long>(random() % workers.size()));
    ASSERT_EQ(kill(victim->second, SIGKILL), 0);

    ASSERT_EQ(runner.Wait(), 0) << runner.Output();
    EXPECT_EQ(runner.WeightsSha256(), UndisturbedSha256(Shape()));
    // No completed step is lost: the log has each once. None is computed twice: those reported
    // rise. (One is missing there when the lead dies after a step and before it says so.)
    EXPECT_EQ(runner.LoggedSteps(), StepsUpTo(Shape().steps));
    const std::vector<int> reported = runner.ReportedSteps();
    EXPECT_TRUE(std::ranges::is_sorted(reported, std::less_equal<int>())) << runner.Output();
    EXPECT_GE(reported.size(), static_cast<size_t>(Shape().steps - 1));
  }
}

TEST_P(RecoveryTest, AllRanksKilledResumeFromTheCheckpoint) {
  for (int seed = 0; seed < Seeds(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(static_cast<unsigned>(seed * 104729 + GetParam().ranks));
    JobRunner runner(Shape());
    runner.Start();
    WaitForRandomMoment(runner, random);
    const auto workers = runner.Workers();
    for (const auto& [rank, pid] : workers) kill(pid, SIGKILL);

    ASSERT_EQ(runner.Wait(), 0) << runner.Output();
    EXPECT_EQ(runner.WeightsSha256(), UndisturbedSha256(Shape()));
  }
}

TEST_P(RecoveryTest, KilledRunContinuesWhenStartedAgain) {
  for (int seed = 0; seed < Seeds(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(static_cast<unsigned>(seed * 15485863 + GetParam().ranks));
    JobRunner runner(Shape());
    runner.Start();
    WaitForRandomMoment(runner, random);
    runner.Signal(SIGKILL);
    ASSERT_EQ(runner.Wait(), 128 + SIGKILL);

    runner.Start();
    ASSERT_EQ(runner.Wait(), 0) << runner.Output();
    EXPECT_EQ(runner.WeightsSha256(), UndisturbedSha256(Shape()));
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, RecoveryTest,
                         ::testing::Values(Case{"lora", 2}, Case{"full", 2}, Case{"lora", 4},
                                           Case{"full", 4}),
                         CaseName);

}  // namespace
}  // namespace everstep::testing
