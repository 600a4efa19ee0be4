// Logits of fixed ids, as transformers computes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/files.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/model/bound_model.h"

namespace everstep {
namespace {

class ForwardTest : public testing::TestWithParam<const char*> {};

TEST_P(ForwardTest, LogitsAreThoseOfTransformers) {
  const std::string name = GetParam();
  const Json golden =
      ParseJson(ReadFile(GoldenPath("forward.json")).value(), "forward.json").value();
  BoundModel bound = LoadBound(GoldenModel(name), FullConfig());
  MicroBatch batch;
  batch.rows = 2;
  batch.cols = 80;
  for (const Json& row : golden["input_ids"]) {
    for (const Json& id : row) batch.ids.push_back(id.get<int64_t>());
  }
  batch.labels.assign(160, kIgnoreLabel);
  batch.lengths = {80, 60};

  const torch::Tensor logits = bound.model->Logits(batch).value();

  const Json& expected = golden[name + ".sdpa"];
  const auto check = [&](const char* key, int64_t row, int64_t col) {
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(logits[row][col][i].item<double>(),
                  expected[key][static_cast<size_t>(i)].get<double>(), 1e-5)
          << key << " " << i;
    }
  };
  check("logits_0_79_first8", 0, 79);
  check("logits_1_59_first8", 1, 59);
  check("logits_0_0_first8", 0, 0);
  EXPECT_NEAR(logits[0].to(torch::kFloat64).mean().item<double>(), expected["mean"].get<double>(),
              1e-6);
  EXPECT_NEAR(logits[0].to(torch::kFloat64).std().item<double>(), expected["std"].get<double>(),
              1e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, ForwardTest,
                         testing::Values("tiny-llama", "tiny-llama31-rope", "tiny-mistral",
                                         "tiny-qwen2", "tiny-qwen3"));

}  // namespace
}  // namespace everstep
