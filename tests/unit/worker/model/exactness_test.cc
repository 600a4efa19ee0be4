// The same micro-batch gives the same bits: in any process, whatever ran before, with activations
// kept or computed again.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "tests/unit/worker/model/sample_gradient.h"

namespace everstep {
namespace {

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The same from gradient_writer, after another history. A program of its own has LibTorch's threads
// for itself.
std::vector<float> GradientInAnotherProcess(const std::string& variant) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string program = std::string(EVERSTEP_BINARY_DIR) + "/bin/gradient_writer";
    dup2(ends[1], STDOUT_FILENO);
    execl(program.c_str(), program.c_str(), variant.c_str(), static_cast<char*>(nullptr));
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

class ExactnessTest : public testing::TestWithParam<const char*> {};

TEST_P(ExactnessTest, AnotherProcessWithAnotherHistoryGetsTheSameBits) {
  const std::vector<float> here = SampleGradient(ConfigOfVariant(GetParam()));
  EXPECT_TRUE(SameBits(here, GradientInAnotherProcess(GetParam())));
}

TEST_P(ExactnessTest, RecomputedActivationsGiveTheSameBits) {
  const TrainConfig config = ConfigOfVariant(GetParam());
  const std::vector<float> kept = SampleGradient(config);
  TrainConfig checkpointing = config;
  checkpointing.training.gradient_checkpointing = true;
  BoundModel bound = LoadBound(GoldenModel("tiny-qwen3"), checkpointing);
  bound.model->set_activation_budget_bytes(0);
  Randomize(bound);
  bound.Compute({MakeBatch({70, 33, 129}, kSampleVocab, 5)});
  EXPECT_TRUE(SameBits(kept, Bits(bound.gradient)));
}

INSTANTIATE_TEST_SUITE_P(Variants, ExactnessTest,
                         testing::Values("full_fp32", "lora_fp32", "full_bf16", "lora_bf16"));

TEST(ExactnessTest, DrawsDependOnTheKey) {
  BoundModel bound = LoadBound(GoldenModel("tiny-qwen3"), DropoutConfig());
  Randomize(bound);
  const MicroBatch batch = MakeBatch({40}, kSampleVocab, 5);
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
  const MicroBatch batch = MakeBatch({40, 20}, kSampleVocab, 5);
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
  const MicroBatch batch = MakeBatch({60, 21}, kSampleVocab, 9);
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
