#include "worker/boundary_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace everstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TrainingArguments Arguments() {
  TrainingArguments arguments;
  arguments.logging_strategy = "steps";
  arguments.logging_steps = 4;
  arguments.eval_strategy = IntervalStrategy::kNo;
  arguments.save_strategy = IntervalStrategy::kNo;
  return arguments;
}

// Of ten steps, with three to an epoch.
std::vector<int> Steps(const TrainingArguments& arguments, bool Due::*what) {
  const BoundarySchedule schedule(arguments, 10, 3);
  std::vector<int> steps;
  for (int step = 1; step <= 10; ++step) {
    if (schedule.At(step).*what) steps.push_back(step);
  }
  return steps;
}

TEST(BoundaryScheduleTest, EverySoManySteps) {
  TrainingArguments arguments = Arguments();
  EXPECT_THAT(Steps(arguments, &Due::log), ElementsAre(4, 8));
  arguments.logging_first_step = true;
  EXPECT_THAT(Steps(arguments, &Due::log), ElementsAre(1, 4, 8));
  arguments.eval_strategy = IntervalStrategy::kSteps;
  EXPECT_THAT(Steps(arguments, &Due::evaluate), ElementsAre(4, 8)) << "logging_steps by default";
  arguments.eval_steps = 5;
  EXPECT_THAT(Steps(arguments, &Due::evaluate), ElementsAre(5, 10));
}

TEST(BoundaryScheduleTest, TheLastStepIsSavedToo) {
  TrainingArguments arguments = Arguments();
  EXPECT_THAT(Steps(arguments, &Due::save), IsEmpty());
  arguments.save_strategy = IntervalStrategy::kSteps;
  arguments.save_steps = 4;
  EXPECT_THAT(Steps(arguments, &Due::save), ElementsAre(4, 8, 10));
}

TEST(BoundaryScheduleTest, AnEpochEndsWithItsLastStepAndWithTheRun) {
  TrainingArguments arguments = Arguments();
  arguments.logging_strategy = "epoch";
  arguments.save_strategy = IntervalStrategy::kEpoch;
  EXPECT_THAT(Steps(arguments, &Due::log), ElementsAre(3, 6, 9, 10));
  EXPECT_THAT(Steps(arguments, &Due::save), ElementsAre(3, 6, 9, 10));
}

TEST(BoundaryScheduleTest, BelowOneItIsAShareOfAllSteps) {
  TrainingArguments arguments = Arguments();
  arguments.logging_steps = 0.25;  // of ten: two and a half, rounded up
  EXPECT_THAT(Steps(arguments, &Due::log), ElementsAre(3, 6, 9));
  arguments.logging_steps = 0.01;
  EXPECT_EQ(Steps(arguments, &Due::log).size(), 10u);
}

}  // namespace
}  // namespace everstep
