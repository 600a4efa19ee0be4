#include "worker/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace everstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RetainedCheckpoint Valid(int64_t step) { return {step, true, true}; }
RetainedCheckpoint Corrupt(int64_t step) { return {step, false, false}; }
RetainedCheckpoint ModelOnly(int64_t step) { return {step, true, false}; }

std::vector<int64_t> Remove(std::vector<RetainedCheckpoint> checkpoints, RetentionOptions options) {
  return StepsToRemove(checkpoints, options);
}

TEST(RetentionTest, WithoutALimitEverythingStays) {
  EXPECT_THAT(Remove({Valid(1), Valid(2)}, {}), IsEmpty());
  EXPECT_THAT(
      Remove({Valid(1), Valid(2)}, {.total_limit = 0, .best_step = {}, .milestone_steps = 0}),
      IsEmpty());
}

TEST(RetentionTest, TheHighestStepsStay) {
  // By number: 900 is older than 1000, whatever the order of names or times.
  EXPECT_THAT(Remove({Valid(1000), Valid(900), Valid(1100), Valid(95)},
                     {.total_limit = 2, .best_step = {}, .milestone_steps = 0}),
              ElementsAre(95, 900));
}

TEST(RetentionTest, MilestonesStayAndAreNotCounted) {
  EXPECT_THAT(Remove({Valid(100), Valid(150), Valid(200), Valid(250), Valid(300), Corrupt(50)},
                     {.total_limit = 2, .best_step = {}, .milestone_steps = 100}),
              ElementsAre(50));
  EXPECT_THAT(Remove({Valid(100), Valid(150), Valid(200), Valid(250), Valid(300)},
                     {.total_limit = 1, .best_step = {}, .milestone_steps = 100}),
              ElementsAre(150));
  // A damaged one is no milestone.
  EXPECT_THAT(Remove({Corrupt(100), Valid(150), Valid(250)},
                     {.total_limit = 1, .best_step = {}, .milestone_steps = 100}),
              ElementsAre(100, 150));
}

TEST(RetentionTest, ACorruptOneIsNotCounted) {
  EXPECT_THAT(Remove({Valid(10), Valid(20), Corrupt(30)},
                     {.total_limit = 1, .best_step = {}, .milestone_steps = 0}),
              ElementsAre(10));
  EXPECT_THAT(Remove({Corrupt(5), Valid(10), Valid(20)},
                     {.total_limit = 1, .best_step = {}, .milestone_steps = 0}),
              ElementsAre(5, 10));
}

TEST(RetentionTest, NothingValidNothingRemoved) {
  EXPECT_THAT(
      Remove({Corrupt(10), Corrupt(20)}, {.total_limit = 1, .best_step = {}, .milestone_steps = 0}),
      IsEmpty());
}

TEST(RetentionTest, TheBestStays) {
  EXPECT_THAT(Remove({Valid(10), Valid(20), Valid(30)},
                     {.total_limit = 1, .best_step = 10, .milestone_steps = 0}),
              ElementsAre(20));
}

TEST(RetentionTest, TheNewestToResumeFromStays) {
  EXPECT_THAT(Remove({Valid(5), Valid(10), ModelOnly(20), ModelOnly(30)},
                     {.total_limit = 1, .best_step = {}, .milestone_steps = 0}),
              ElementsAre(5, 20));
}

// The invariant, over random states of the directory.
TEST(RetentionTest, NeverRemovesTheNewestValid) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::set<int64_t> steps;
    while (steps.size() < random() % 7 + 1) steps.insert(random() % 50);
    std::vector<RetainedCheckpoint> checkpoints;
    int64_t newest_valid = -1;
    int64_t newest_resumable = -1;
    for (const int64_t step : steps) {
      const bool valid = random() % 3 != 0;
      const bool resumable = valid && random() % 3 != 0;
      checkpoints.push_back({step, valid, resumable});
      if (valid) newest_valid = step;
      if (resumable) newest_resumable = step;
    }
    const auto limit = static_cast<int64_t>(random() % 4);
    for (const int64_t step :
         Remove(checkpoints, {.total_limit = limit, .best_step = {}, .milestone_steps = 0})) {
      EXPECT_NE(step, newest_valid);
      EXPECT_NE(step, newest_resumable);
      EXPECT_LT(step, newest_valid);
    }
  }
}

}  // namespace
}  // namespace everstep
