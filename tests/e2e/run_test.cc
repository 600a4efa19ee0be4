// What `everstep run` does beside training: stops, continues, refuses, starts over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "common/files.h"
#include "tests/e2e/job_runner.h"

namespace everstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

TEST(RunTest, CtrlCSavesACheckpointAndTheSameCommandContinuesThere) {
  JobRunner runner({});
  runner.Start();
  ASSERT_TRUE(runner.WaitForStep(5)) << runner.Output();
  runner.Signal(SIGINT);
  ASSERT_EQ(runner.Wait(), 130) << runner.Output();
  EXPECT_TRUE(runner.Workers().empty());
  EXPECT_TRUE(runner.Supervisors().empty());

  runner.Start();
  ASSERT_EQ(runner.Wait(), 0) << runner.Output();
  EXPECT_EQ(runner.ReportedSteps(), StepsUpTo(24));
  EXPECT_EQ(runner.WeightsSha256(), UndisturbedSha256({}));
}

TEST(RunTest, ASecondCtrlCEndsAtOnceAndNothingIsLeftRunning) {
  JobRunner runner({});
  runner.Start();
  ASSERT_TRUE(runner.WaitForStep(3)) << runner.Output();
  // A worker that hangs never stops by itself.
  for (const auto& [rank, pid] : runner.Workers()) kill(pid, SIGSTOP);
  runner.Signal(SIGINT);
  while (runner.Messages("stopping: saves a checkpoint; once more to stop at once").empty()) {
    ASSERT_TRUE(runner.Running()) << runner.Output();
  }
  runner.Signal(SIGINT);
  EXPECT_EQ(runner.Wait(), 130) << runner.Output();
  for (int i = 0; i < 2000 && !runner.Workers().empty(); ++i) usleep(5000);
  EXPECT_TRUE(runner.Workers().empty());
}

TEST(RunTest, AJobThatIsRunningIsNotRunTwice) {
  JobRunner runner({});
  runner.Start();
  ASSERT_TRUE(runner.WaitForStep(1)) << runner.Output();
  const pid_t first = runner.pid();
  EXPECT_EQ(runner.RunBeside(), 2);
  EXPECT_THAT(runner.Output(),
              HasSubstr(": the job is running already (process " + std::to_string(first) + ")"));
  EXPECT_EQ(runner.Wait(), 0) << runner.Output();
}

TEST(RunTest, AJobThatHasSucceededIsNotRunAgainUnlessAsked) {
  JobRunner runner({});
  runner.Start();
  ASSERT_EQ(runner.Wait(), 0) << runner.Output();
  const std::string weights = runner.WeightsSha256();
  runner.Start();
  EXPECT_EQ(runner.Wait(), 0) << runner.Output();
  EXPECT_EQ(runner.ReportedSteps(), StepsUpTo(24));

  runner.Start({"--again"});
  EXPECT_EQ(runner.Wait(), 0) << runner.Output();
  EXPECT_EQ(runner.ReportedSteps().size(), 48U) << "from the first step";
  EXPECT_EQ(runner.WeightsSha256(), weights);
}

TEST(RunTest, TheManifestsWishesForCheckpointsCount) {
  JobShape shape;
  shape.steps = 16;
  shape.checkpoint = ", keepLast: 2, intervalSteps: 2, milestoneSteps: 6";
  JobRunner runner(shape);
  runner.Start();
  ASSERT_EQ(runner.Wait(), 0) << runner.Output();
  EXPECT_THAT(CheckpointsIn(runner.results()),
              ElementsAre("checkpoint-12", "checkpoint-14", "checkpoint-16", "checkpoint-6"));
}

TEST(RunTest, TheBestModelIsTheOneThatIsLeft) {
  JobShape shape;
  shape.finetuning = "full";
  shape.steps = 20;
  // So fast that it soon gets worse on what it does not see.
  shape.train = {{"learning_rate", "1.0e-1"},
                 {"lr_scheduler_type", "constant"},
                 {"warmup_ratio", "0.0"},
                 {"val_size", "8"},
                 {"eval_strategy", "steps"},
                 {"eval_steps", "2"},
                 {"save_steps", "2"},
                 {"save_total_limit", "2"},
                 {"load_best_model_at_end", "true"}};
  JobRunner runner(shape);
  runner.Start();
  ASSERT_EQ(runner.Wait(), 0) << runner.Output();

  const auto text = ReadFile(runner.results() / "trainer_state.json");
  ASSERT_TRUE(text) << text.error().message;
  const Json state = Json::parse(*text);
  int best_step = 0;
  double best_loss = 0;
  std::vector<double> losses;
  for (const Json& record : state["log_history"]) {
    if (!record.contains("eval_loss")) continue;
    losses.push_back(record["eval_loss"]);
    if (losses.size() > 10 || (best_step > 0 && losses.back() >= best_loss)) continue;
    best_step = record["step"];
    best_loss = losses.back();
  }
  ASSERT_EQ(losses.size(), 11U) << "ten while training, one at the end";
  ASSERT_LT(best_step, 20) << "this learning rate overfits before the last step";
  EXPECT_EQ(state["best_global_step"], best_step);
  EXPECT_EQ(state["best_metric"], best_loss);
  EXPECT_EQ(losses.back(), best_loss) << "the final evaluation is of the best model";
  const fs::path checkpoint = runner.results() / ("checkpoint-" + std::to_string(best_step));
  EXPECT_EQ(FileSha256(checkpoint / "model.safetensors"), runner.WeightsSha256());
  EXPECT_TRUE(fs::exists(runner.results() / "checkpoint-20")) << "the newest is kept beside it";
}

}  // namespace
}  // namespace everstep::testing
