// What goes into the model at every step of a run, against LLaMA-Factory's own
// (tests/golden/batches, made with tests/golden/configs).
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/worker/data/golden.h"
#include "worker/config/train_config.h"
#include "worker/data/collate.h"
#include "worker/data/prepare.h"
#include "worker/data/sample_order.h"

namespace everstep {
namespace {

class GoldenBatchesTest : public ::testing::TestWithParam<const char*> {};

Json Rows(const std::vector<int64_t>& cells, int64_t cols) {
  Json rows = Json::array();
  for (auto at = cells.begin(); at != cells.end(); at += cols) {
    rows.push_back(std::vector<int64_t>(at, at + cols));
  }
  return rows;
}

// For each position of the first row: the first and the last position that it attends to.
Json SeenBySegments(const MicroBatch& batch) {
  Json seen = Json::array();
  int64_t begin = 0;
  for (int64_t at = 0; at < batch.cols; ++at) {
    const int32_t segment = batch.segments[static_cast<size_t>(at)];
    if (at > 0 && segment != batch.segments[static_cast<size_t>(at - 1)]) begin = at;
    seen.push_back(segment == 0 ? Json::array() : Json::array({begin, at}));
  }
  return seen;
}

void Compare(const MicroBatch& batch, const Json& golden) {
  EXPECT_EQ(Rows(batch.ids, batch.cols), golden["ids"]);
  for (size_t row = 0; row < golden["ids"].size(); ++row) {
    const auto begin = batch.labels.begin() + static_cast<long>(row) * batch.cols;
    EXPECT_EQ(std::vector<int64_t>(begin, begin + batch.cols),
              GoldenLabels(golden["ids"][row], golden["trained"][row]))
        << "row " << row;
  }
  if (golden.contains("positions")) {
    EXPECT_EQ(Rows(batch.positions, batch.cols), golden["positions"]);
  } else {
    EXPECT_TRUE(batch.positions.empty());
  }
  if (golden.contains("sees")) {
    EXPECT_EQ(SeenBySegments(batch), golden["sees"]);
  } else {
    EXPECT_TRUE(batch.segments.empty());
    EXPECT_EQ(Json(batch.lengths), golden["lengths"]);
  }
}

TEST_P(GoldenBatchesTest, EqualLlamaFactorys) {
  const std::string name = GetParam();
  auto config = LoadTrainConfig(GoldenPath("configs/" + name + ".yaml"));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  config->data.dataset_dir = GoldenPath("data");
  const std::string model =
      std::filesystem::path(config->model.model_name_or_path).filename().string();
  auto tokenizer = Tokenizer::Load(TestTokenizerDir(model));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const auto prepared = PrepareData(*config, *tokenizer, GoldenDay());
  ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
  const TrainingArguments& training = config->training;
  const SampleOrder order({.samples = static_cast<int64_t>(prepared->train.size()),
                           .batch_size = training.per_device_train_batch_size,
                           .accumulation = training.gradient_accumulation_steps,
                           .seed = training.seed,
                           .num_train_epochs = training.num_train_epochs,
                           .max_steps = training.max_steps});

  const std::vector<Json> golden = ReadGoldenLines("batches/" + name + ".jsonl");
  size_t next = 0;
  for (int64_t step = 0; step < order.max_steps(); ++step) {
    int64_t label_tokens = 0;
    const size_t first = next;
    for (const auto& samples : order.MicroBatches(step, 0)) {
      SCOPED_TRACE("step " + std::to_string(step) + ", micro-batch " + std::to_string(next));
      std::vector<const Example*> examples;
      for (const size_t sample : samples) examples.push_back(&prepared->train[sample]);
      const MicroBatch batch =
          Collate(examples, {.pad_id = prepared->pad_id, .pad_multiple = prepared->pad_multiple});
      ASSERT_LT(next, golden.size());
      EXPECT_EQ(golden[next]["step"], step);
      Compare(batch, golden[next++]);
      ASSERT_FALSE(HasFailure());
      label_tokens += batch.label_tokens;
    }
    EXPECT_EQ(golden[first]["label_tokens"], label_tokens) << "step " << step;
  }
  EXPECT_EQ(next, golden.size());
}

INSTANTIATE_TEST_SUITE_P(
    Runs, GoldenBatchesTest,
    ::testing::Values("own_pt_full", "own_pt_nopack", "own_sft_epochs", "own_sft_freeze",
                      "own_sft_full", "own_sft_full_llama_alpaca", "own_sft_full_llama_default",
                      "own_sft_full_llama_vicuna", "own_sft_full_mistral_mistral",
                      "own_sft_full_qwen2_qwen", "own_sft_full_qwen3_qwen3",
                      "own_sft_full_qwen3_qwen3_nothink", "own_sft_lora", "own_sft_mask_history",
                      "own_sft_neat_packing", "own_sft_openai_fmt", "own_sft_packing",
                      "own_sft_train_on_prompt"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace everstep
