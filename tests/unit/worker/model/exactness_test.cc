// The same micro-batch gives the same bits: in any process, whatever ran before, with activations
// kept or computed again.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "tests/unit/worker/model/bound_model.h"

namespace everstep {
namespace {

constexpr int64_t kVocab = 2048;

TrainConfig DropoutConfig() {
  TrainConfig config = LoraConfig();
  config.finetuning.lora.dropout = 0.2;
  config.training.neftune_noise_alpha = 5;
  return config;
}

// B is zero at first: random values make every gradient count.
void Randomize(BoundModel& bound) {
  torch::manual_seed(11);
  bound.parameters.normal_(0, 0.05);
  bound.model->AfterUpdate();
}

std::vector<float> Bits(const torch::Tensor& t) {
  return {t.const_data_ptr<float>(), t.const_data_ptr<float>() + t.numel()};
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct History {
  std::vector<std::vector<int32_t>> before;  // lengths of micro-batches that ran earlier
};

std::vector<float> GradientAfter(const TrainConfig& config, const History& history) {
  BoundModel bound = LoadBound(GoldenModel("tiny-qwen3"), config);
  Randomize(bound);
  uint64_t seed = 100;
  for (const std::vector<int32_t>& lengths : history.before) {
    bound.Compute({MakeBatch(lengths, kVocab, seed++)});
  }
  bound.Compute({MakeBatch({70, 33, 129}, kVocab, 5)});
  return Bits(bound.gradient);
}

// The same in a process of its own, which starts another program image so that LibTorch's threads
// are its own.
std::vector<float> GradientInAnotherProcess(const std::string& variant) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 3);
    setenv("EVERSTEP_EXACTNESS_VARIANT", variant.c_str(), 1);
    execl("/proc/self/exe", "model_test", "--gtest_filter=ExactnessChild.*",
          "--gtest_also_run_disabled_tests", static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  std::vector<float> values;
  float buffer[4096];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    const auto* bytes = reinterpret_cast<const char*>(buffer);
    const size_t at = values.size();
    // Pipes hand out whole floats here: everything is written in multiples of four bytes.
    EXPECT_EQ(got % 4, 0);
    values.resize(at + static_cast<size_t>(got) / 4);
    std::memcpy(values.data() + at, bytes, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return values;
}

TrainConfig ConfigOfVariant(const std::string& variant) {
  TrainConfig config = variant.starts_with("lora") ? DropoutConfig() : FullConfig();
  if (variant.ends_with("bf16")) config.training.precision = Precision::kBFloat16;
  return config;
}

// Run by GradientInAnotherProcess only.
TEST(ExactnessChild, DISABLED_WritesAGradient) {
  const char* variant = std::getenv("EVERSTEP_EXACTNESS_VARIANT");
  ASSERT_NE(variant, nullptr);
  const std::vector<float> values =
      GradientAfter(ConfigOfVariant(variant), {.before = {{500, 3}, {17}, {64, 64, 64, 64}}});
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  for (size_t sent = 0; sent < values.size() * 4;) {
    const size_t count = std::min<size_t>(4096, values.size() * 4 - sent);
    const ssize_t wrote = write(3, bytes + sent, count);
    ASSERT_GT(wrote, 0);
    sent += static_cast<size_t>(wrote);
  }
}

class ExactnessTest : public testing::TestWithParam<const char*> {};

TEST_P(ExactnessTest, AnotherProcessWithAnotherHistoryGetsTheSameBits) {
  const std::vector<float> here = GradientAfter(ConfigOfVariant(GetParam()), {});
  EXPECT_TRUE(SameBits(here, GradientInAnotherProcess(GetParam())));
}

TEST_P(ExactnessTest, RecomputedActivationsGiveTheSameBits) {
  const TrainConfig config = ConfigOfVariant(GetParam());
  const std::vector<float> kept = GradientAfter(config, {});
  TrainConfig checkpointing = config;
  checkpointing.training.gradient_checkpointing = true;
  BoundModel bound = LoadBound(GoldenModel("tiny-qwen3"), checkpointing);
  bound.model->set_activation_budget_bytes(0);
  Randomize(bound);
  bound.Compute({MakeBatch({70, 33, 129}, kVocab, 5)});
  EXPECT_TRUE(SameBits(kept, Bits(bound.gradient)));
}

INSTANTIATE_TEST_SUITE_P(Variants, ExactnessTest,
                         testing::Values("full_fp32", "lora_fp32", "full_bf16", "lora_bf16"));

TEST(ExactnessTest, DrawsDependOnTheKey) {
  BoundModel bound = LoadBound(GoldenModel("tiny-qwen3"), DropoutConfig());
  Randomize(bound);
  const MicroBatch batch = MakeBatch({40}, kVocab, 5);
  const auto loss = [&](const MicroBatchKey& key) {
    return bound.model->ForwardBackward(batch, key, bound.gradient)->loss_sum;
  };
  const double base = loss({.seed = 1, .step = 2, .logical_rank = 3, .accumulation = 0});
  EXPECT_EQ(loss({.seed = 1, .step = 2, .logical_rank = 3, .accumulation = 0}), base);
  EXPECT_NE(loss({.seed = 1, .step = 2, .logical_rank = 3, .accumulation = 1}), base);
  EXPECT_NE(loss({.seed = 1, .step = 2, .logical_rank = 2, .accumulation = 0}), base);
  EXPECT_NE(loss({.seed = 1, .step = 3, .logical_rank = 3, .accumulation = 0}), base);
  EXPECT_NE(loss({.seed = 2, .step = 2, .logical_rank = 3, .accumulation = 0}), base);
}

TEST(ExactnessTest, GradientsAreAddedToWhatIsThere) {
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), FullConfig());
  const MicroBatch batch = MakeBatch({40, 20}, kVocab, 5);
  bound.Compute({batch});
  const torch::Tensor once = bound.gradient.clone();
  bound.Compute({batch, batch});
  EXPECT_TRUE(torch::allclose(bound.gradient, once * 2, 1e-5, 1e-6));
}

// Directional derivative: the loss along a small step in the direction of the gradient.
TEST(ExactnessTest, GradientsAreDerivativesOfTheLossWithDropoutAndNoise) {
  TrainConfig config = DropoutConfig();
  config.finetuning.lora.additional_target = {"input_layernorm"};
  BoundModel bound = LoadBound(GoldenModel("tiny-qwen3"), config);
  Randomize(bound);
  const MicroBatch batch = MakeBatch({60, 21}, kVocab, 9);
  bound.Compute({batch});
  const torch::Tensor direction = bound.gradient / bound.gradient.norm();
  const double slope = bound.gradient.norm().item<double>();
  const torch::Tensor start = bound.parameters.clone();
  const double h = 1e-3;
  const auto loss_at = [&](double distance) {
    bound.parameters.copy_(start + direction * distance);
    bound.model->AfterUpdate();
    return bound.Compute({batch});
  };
  const double measured = (loss_at(h) - loss_at(-h)) / (2 * h);
  EXPECT_NEAR(measured / slope, 1, 1e-2);
}

}  // namespace
}  // namespace everstep
