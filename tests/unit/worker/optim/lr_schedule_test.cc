#include "worker/optim/lr_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/files.h"
#include "common/json.h"
#include "tests/support/paths.h"

namespace everstep {
namespace {

using ::testing::HasSubstr;

TrainingArguments Arguments(const std::string& type, double rate) {
  TrainingArguments training;
  training.lr_scheduler_type = type;
  training.learning_rate = rate;
  return training;
}

// Rates as transformers' get_scheduler sets them (with LLaMA-Factory's defaults), all types.
TEST(LrScheduleTest, EqualsTransformersToTheLastBit) {
  const auto text = ReadFile(GoldenPath("lr_schedules.json"));
  ASSERT_TRUE(text) << text.error().message;
  const auto cases = ParseJson(*text, "lr_schedules.json");
  ASSERT_TRUE(cases);
  ASSERT_GT(cases->size(), 100u);
  for (const Json& golden : *cases) {
    TrainingArguments training =
        Arguments(golden["lr_scheduler_type"], golden["learning_rate"].get<double>());
    training.warmup_ratio = golden["warmup_ratio"];
    training.warmup_steps = golden["warmup_steps"];
    training.lr_scheduler_kwargs = golden["lr_scheduler_kwargs"];
    const auto schedule = LrSchedule::Create(training, golden["max_steps"].get<int64_t>());
    ASSERT_TRUE(schedule) << schedule.error().message;
    for (size_t step = 0; step < golden["rates"].size(); ++step) {
      EXPECT_EQ(schedule->LearningRate(static_cast<int64_t>(step)),
                golden["rates"][step].get<double>())
          << "step " << step << " of " << training.lr_scheduler_type << " "
          << training.lr_scheduler_kwargs;
    }
  }
}

// The "lr" columns of LLaMA-Factory's own runs.
TEST(LrScheduleTest, EqualsTheLogsOfLlamaFactory) {
  const auto text = ReadFile(GoldenPath("logged_rates.json"));
  ASSERT_TRUE(text) << text.error().message;
  const auto runs = ParseJson(*text, "logged_rates.json");
  ASSERT_TRUE(runs);
  ASSERT_GE(runs->size(), 7u);
  for (const Json& run : *runs) {
    TrainingArguments training = Arguments(run["lr_scheduler_type"], run["learning_rate"]);
    training.warmup_ratio = run["warmup_ratio"];
    training.lr_scheduler_kwargs = run["lr_scheduler_kwargs"];
    const auto schedule = LrSchedule::Create(training, run["max_steps"].get<int64_t>());
    ASSERT_TRUE(schedule) << schedule.error().message;
    ASSERT_GT(run["lr"].size(), 0u);
    for (size_t step = 0; step < run["lr"].size(); ++step) {
      EXPECT_EQ(schedule->LearningRate(static_cast<int64_t>(step)), run["lr"][step].get<double>())
          << run["name"] << ", step " << step;
    }
  }
}

TEST(LrScheduleTest, WarmupIsAShareOrANumberOfSteps) {
  TrainingArguments training = Arguments("linear", 1);
  training.warmup_ratio = 0.5;
  EXPECT_EQ(LrSchedule::Create(training, 11)->warmup_steps(), 6);
  training.warmup_ratio = 0;
  training.warmup_steps = 2;
  EXPECT_EQ(LrSchedule::Create(training, 11)->warmup_steps(), 2);
  training.warmup_steps = 0.1;  // below 1: a ratio itself
  EXPECT_EQ(LrSchedule::Create(training, 11)->warmup_steps(), 2);
}

TEST(LrScheduleTest, TheFirstWarmUpStepHasRateZero) {
  TrainingArguments training = Arguments("cosine", 1e-3);
  training.warmup_steps = 3;
  const auto schedule = LrSchedule::Create(training, 10);
  EXPECT_EQ(schedule->LearningRate(0), 0.0);
  EXPECT_EQ(schedule->LearningRate(3), 1e-3);
}

struct BadCase {
  std::string type;
  Json kwargs;
  std::string message;
};

TEST(LrScheduleTest, RefusesWhatItDoesNotKnow) {
  const std::vector<BadCase> cases{
      {"cosin", Json::object(), "did you mean 'cosine'?"},
      {"linear", {{"num_cycles", 2}}, "lr_scheduler_kwargs.num_cycles: is not an argument"},
      {"cosine", {{"num_cycles", "two"}}, "lr_scheduler_kwargs.num_cycles: must be a number"},
      {"cosine_with_min_lr", Json::object(), "needs one of min_lr and min_lr_rate"},
      {"cosine_with_min_lr",
       {{"min_lr", 1e-6}, {"min_lr_rate", 0.1}},
       "needs one of min_lr and min_lr_rate"},
      {"polynomial", {{"lr_end", 1.0}}, "lr_end: must be below learning_rate"},
      {"inverse_sqrt", {{"timescale", 0}}, "timescale: must be above 0"},
      {"warmup_stable_decay", {{"decay_type", "steep"}}, "must be linear, cosine or 1-sqrt"}};
  for (const BadCase& bad : cases) {
    TrainingArguments training = Arguments(bad.type, 1e-3);
    training.lr_scheduler_kwargs = bad.kwargs;
    const auto schedule = LrSchedule::Create(training, 10);
    ASSERT_FALSE(schedule) << bad.type << bad.kwargs;
    EXPECT_EQ(schedule.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(schedule.error().message, HasSubstr(bad.message));
  }
}

}  // namespace
}  // namespace everstep
