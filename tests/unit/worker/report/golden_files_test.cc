// The files of LLaMA-Factory's runs, made again from their own numbers: equal byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/files.h"
#include "common/json.h"
#include "common/strings.h"
#include "tests/support/paths.h"
#include "worker/report/model_card.h"
#include "worker/report/results.h"
#include "worker/report/trainer_log.h"
#include "worker/report/trainer_state.h"

namespace everstep {
namespace {

using ::testing::HasSubstr;

std::string Golden(const std::string& run, const std::string& file) {
  auto text = ReadFile(GoldenPath("runs/" + run + "/" + file));
  EXPECT_TRUE(text) << text.error().message;
  return text.value_or("");
}

Json GoldenState(const std::string& run) {
  return ParseJson(Golden(run, "trainer_state.json"), run).value_or(Json::object());
}

// "0:01:05" -> 65
double SecondsOf(const std::string& text) {
  double seconds = 0;
  for (const std::string& part : SplitAndTrim(text, ':')) seconds = seconds * 60 + std::stod(part);
  return seconds;
}

// What the run logged, with the times of trainer_log.jsonl.
LogHistory HistoryOf(const std::string& run) {
  LogHistory history;
  const std::vector<std::string> lines = SplitAndTrim(Golden(run, "trainer_log.jsonl"), '\n');
  const Json logged = GoldenState(run)["log_history"];
  EXPECT_EQ(lines.size(), logged.size());
  for (size_t i = 0; i < logged.size(); ++i) {
    LogRecord record;
    for (const auto& [key, value] : logged[i].items()) {
      if (key == "step") {
        record.step = value;
      } else if (key == "epoch") {
        record.epoch = value;
      } else {
        record.values[key] = value;
      }
    }
    record.elapsed_seconds = SecondsOf(ParseJson(lines[i], run)->at("elapsed_time"));
    history.Add(record);
  }
  return history;
}

class GoldenRunTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenRunTest, TrainerLog) {
  const auto history = HistoryOf(GetParam());
  const int64_t total = GoldenState(GetParam())["max_steps"];
  EXPECT_EQ(TrainerLogText(history, total), Golden(GetParam(), "trainer_log.jsonl"));
}

TEST_P(GoldenRunTest, TrainerState) {
  const Json golden = GoldenState(GetParam());
  TrainerStateFacts facts;
  facts.epoch = golden["epoch"];
  facts.global_step = golden["global_step"];
  facts.max_steps = golden["max_steps"];
  facts.num_train_epochs = golden["num_train_epochs"];
  facts.logging_steps = golden["logging_steps"];
  facts.save_steps = golden["save_steps"];
  facts.train_batch_size = golden["train_batch_size"];
  facts.total_flos = golden["total_flos"];
  EXPECT_EQ(TrainerStateJson(facts, HistoryOf(GetParam())),
            Golden(GetParam(), "trainer_state.json"));
}

TEST_P(GoldenRunTest, Results) {
  const Json golden = *ParseJson(Golden(GetParam(), "all_results.json"), GetParam());
  EXPECT_EQ(ResultsJson(golden.get<Metrics>()), Golden(GetParam(), "all_results.json"));
}

INSTANTIATE_TEST_SUITE_P(Runs, GoldenRunTest,
                         ::testing::Values("own_sched_linear", "own_sft_epochs"));

TEST(ResultsTest, RoundsAsSpeedMetricsDo) {
  const Metrics metrics = TrainMetrics({.epoch = 1.5,
                                        .total_flos = 5429630976.0,
                                        .train_loss = 7.332673152287801,
                                        .runtime_seconds = 0.54300123,
                                        .steps = 12,
                                        .samples = 48});
  EXPECT_EQ(ResultsJson(metrics), R"({
    "epoch": 1.5,
    "total_flos": 5429630976.0,
    "train_loss": 7.332673152287801,
    "train_runtime": 0.543,
    "train_samples_per_second": 88.398,
    "train_steps_per_second": 22.099
})");
}

TEST(ResultsTest, EvaluationHasItsPrefix) {
  const Metrics metrics = EvalMetrics({.prefix = "eval_own",
                                       .epoch = 1,
                                       .loss = 2.5,
                                       .runtime_seconds = 2,
                                       .samples = 10,
                                       .batches = 5});
  EXPECT_EQ(metrics, (Metrics{{"epoch", 1},
                              {"eval_own_loss", 2.5},
                              {"eval_own_runtime", 2},
                              {"eval_own_samples_per_second", 5},
                              {"eval_own_steps_per_second", 2.5}}));
}

TEST(TrainerLogTest, EvaluationTokensAndTimes) {
  const LogRecord record{.step = 5,
                         .epoch = 0.5,
                         .values = {{"eval_loss", 2.25}, {"eval_runtime", 0.5}},
                         .elapsed_seconds = 90061.9,
                         .input_tokens = 1000};
  EXPECT_EQ(TrainerLogLine(record, 10),
            R"({"current_steps": 5, "total_steps": 10, "eval_loss": 2.25, "epoch": 0.5, )"
            R"("percentage": 50.0, "elapsed_time": "1 day, 1:01:01", )"
            R"("remaining_time": "1 day, 1:01:01", "throughput": 0.01, "total_tokens": 1000})"
            "\n");
}

TEST(TrainerLogTest, RewriteReplacesWhatAFormerLeadLeft) {
  const std::string path = ::testing::TempDir() + "trainer_log_test.jsonl";
  const TrainerLog log(path, 4);
  const LogRecord first{.step = 1, .epoch = 0.25, .values = {{"loss", 3.0}}};
  const LogRecord second{.step = 2, .epoch = 0.5, .values = {{"loss", 2.0}}};
  LogHistory history;
  history.Add(first);
  ASSERT_TRUE(WriteFileAtomically(path, "{\"current_steps\": 1}\n{\"current_steps\": 2, \"lo"));
  ASSERT_TRUE(log.Rewrite(history));
  ASSERT_TRUE(log.Append(second));
  EXPECT_EQ(ReadFile(path).value_or(""), TrainerLogLine(first, 4) + TrainerLogLine(second, 4));
  std::filesystem::remove(path);
}

TEST(TrainerLogTest, AFolderThatIsGoneIsAnError) {
  const TrainerLog log(::testing::TempDir() + "no-such-folder/trainer_log.jsonl", 4);
  EXPECT_FALSE(log.Append(LogRecord()));
  EXPECT_FALSE(log.Rewrite({}));
}

TEST(ModelCardTest, NamesWhatItIsMadeOf) {
  const std::string text = ModelCardText({.name = "qwen-sft",
                                          .base_model = "models/Qwen \"3\"",
                                          .finetuning_type = "lora",
                                          .stage = "sft",
                                          .datasets = {"a", "b"},
                                          .settings = {{"learning_rate", "0.001"}},
                                          .results = {{"train_loss", 1e-5}}});
  EXPECT_THAT(text, HasSubstr("library_name: peft\n"));
  EXPECT_THAT(text, HasSubstr("base_model: \"models/Qwen \\\"3\\\"\"\n"));
  EXPECT_THAT(text, HasSubstr("# qwen-sft\n"));
  EXPECT_THAT(text, HasSubstr("on a, b with Everstep."));
  EXPECT_THAT(text, HasSubstr("- learning_rate: 0.001\n"));
  EXPECT_THAT(text, HasSubstr("| train_loss | 1e-05 |\n"));
}

}  // namespace
}  // namespace everstep
