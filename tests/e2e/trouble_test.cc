// Trouble that is no crash: numbers that are none, a disk that is full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/json.h"
#include "tests/e2e/job_runner.h"
#include "tests/support/small_disk.h"

namespace everstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

TEST(TroubleTest, ALossThatIsNoNumberStopsTheJobAndKeepsTheLastCheckpoint) {
  JobShape shape;
  shape.finetuning = "full";
  shape.train = {{"learning_rate", "1.0e+30"}, {"save_steps", "1"}, {"warmup_ratio", "0.0"}};
  JobRunner runner(shape);
  runner.Start();
  EXPECT_EQ(runner.Wait(), 1) << runner.Output();
  EXPECT_THAT(runner.Output(),
              HasSubstr("step 2: the loss or the gradient norm is not a finite number"));
  EXPECT_THAT(runner.Output(), HasSubstr("the last checkpoint is kept"));
  EXPECT_EQ(runner.ReportedSteps(), std::vector<int>{1});
  EXPECT_EQ(CheckpointsIn(runner.results()), std::vector<std::string>{"checkpoint-1"});
  EXPECT_FALSE(fs::exists(runner.results() / "model.safetensors"));
}

JobShape ShapeOnDisk(const fs::path& output) {
  JobShape shape;
  shape.finetuning = "full";
  shape.steps = 40;
  shape.save_steps = 4;
  shape.train = {{"output_dir", output.string()}, {"save_total_limit", "1"}};
  return shape;
}

bool WaitForCheckpointMessage(JobRunner& runner, bool with_warning) {
  for (int i = 0; i < 12000 && runner.Running(); ++i) {
    for (const Json& saved : runner.Messages("checkpoint")) {
      if (JsonValue<std::string>(saved, "warning", "").empty() != with_warning) return true;
    }
    usleep(5000);
  }
  return false;
}

class FullDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!disk_.mounted()) GTEST_SKIP() << "no tmpfs can be mounted: " << disk_.reason();
  }

  const SmallDisk disk_{16};  // a checkpoint of all weights (3.5 MiB) fits a few times
  const fs::path out_ = fs::path(disk_.path()) / "out";
};

TEST_F(FullDiskTest, SavingPausesAndTrainingGoesOn) {
  JobRunner runner(ShapeOnDisk(out_));
  runner.Start();
  ASSERT_TRUE(WaitForCheckpointMessage(runner, false)) << runner.Output();
  disk_.Fill();
  ASSERT_TRUE(WaitForCheckpointMessage(runner, true)) << runner.Output();
  // One complete checkpoint, and no half one beside it.
  EXPECT_EQ(CheckpointsIn(out_).size(), 1U);
  disk_.Free();
  ASSERT_EQ(runner.Wait(), 0) << runner.Output();
  EXPECT_THAT(runner.Output(), HasSubstr("are missing"));
  EXPECT_EQ(CheckpointsIn(out_), std::vector<std::string>{"checkpoint-40"});
  EXPECT_EQ(runner.ReportedSteps(), StepsUpTo(40));
}

TEST_F(FullDiskTest, AJobWhoseResultCannotBeSavedHasFailedAndContinuesWhenThereIsSpace) {
  JobRunner runner(ShapeOnDisk(out_));
  runner.Start();
  ASSERT_TRUE(WaitForCheckpointMessage(runner, false)) << runner.Output();
  disk_.Fill();
  EXPECT_EQ(runner.Wait(), 1) << runner.Output();
  EXPECT_THAT(runner.Output(), HasSubstr("are missing"));
  EXPECT_EQ(CheckpointsIn(out_).size(), 1U);
  EXPECT_FALSE(fs::exists(out_ / "model.safetensors"));

  disk_.Free();
  runner.Start();
  EXPECT_EQ(runner.Wait(), 0) << runner.Output();
  EXPECT_TRUE(fs::exists(out_ / "model.safetensors"));
}

}  // namespace
}  // namespace everstep::testing
