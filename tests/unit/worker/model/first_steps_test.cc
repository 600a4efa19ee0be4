// Losses and gradients of the first steps of LLaMA-Factory's runs, fed with the very micro-batches
// that went into its model. The learning rate of the first step is 0, so both steps start from the
// same weights.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/model/bound_model.h"

namespace everstep {
namespace {

struct Tolerance {
  double loss = 2e-6;
  double gradient = 1e-4;
};

void ExpectRelative(double actual, double expected, double tolerance, const std::string& what) {
  EXPECT_NEAR(actual, expected, tolerance * std::abs(expected) + 1e-9) << what;
}

void ExpectSteps(BoundModel& bound, const std::string& name, Tolerance tolerance = {}) {
  for (const GoldenStep& step : LoadGoldenSteps(name)) {
    const double loss = bound.Compute(step.batches);
    ExpectRelative(loss / step.label_tokens, step.loss, tolerance.loss, name + ": loss");
    bound.gradient.div_(step.label_tokens);
    ExpectRelative(bound.gradient.to(torch::kFloat64).norm().item<double>(), step.total_norm,
                   tolerance.gradient, name + ": gradient norm");
    EXPECT_EQ(step.gradient_norms.size(), bound.layout.entries.size());
    for (const auto& [parameter, norm] : step.gradient_norms.items()) {
      const torch::Tensor gradient = bound.GradientOf(parameter).to(torch::kFloat64);
      ExpectRelative(gradient.norm().item<double>(), norm.get<double>(), tolerance.gradient,
                     parameter);
      // The sum nearly cancels: what counts is its error beside the gradient's size.
      const double size = norm.get<double>() * std::sqrt(static_cast<double>(gradient.numel()));
      EXPECT_NEAR(gradient.sum().item<double>(), step.gradient_sums[parameter].get<double>(),
                  tolerance.gradient * size)
          << parameter;
    }
  }
}

// Loss and gradient norm of the first step where only the log is known.
void ExpectLogged(BoundModel& bound, const std::string& data, double loss, double norm,
                  Tolerance tolerance = {}) {
  const GoldenStep step = LoadGoldenSteps(data).front();
  const bool means = bound.model->normalization() == LossNormalization::kMicroBatchMeans;
  const double denominator = means ? 1 : step.label_tokens;
  ExpectRelative(bound.Compute(step.batches) / denominator, loss, tolerance.loss, "loss");
  ExpectRelative(bound.gradient.to(torch::kFloat64).norm().item<double>() / denominator, norm,
                 tolerance.gradient, "gradient norm");
}

TEST(FirstStepsTest, FullFinetuning) {
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), FullConfig());
  ExpectSteps(bound, "own_sft_full");
}

TEST(FirstStepsTest, FullFinetuningWithPromptsTrained) {
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), FullConfig());
  ExpectSteps(bound, "own_sft_train_on_prompt");
}

TEST(FirstStepsTest, Pretraining) {
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), FullConfig());
  ExpectSteps(bound, "own_pt_full");
  ExpectSteps(bound, "own_pt_nopack");
}

TEST(FirstStepsTest, Qwen2WithBiases) {
  BoundModel bound = LoadBound(GoldenModel("tiny-qwen2"), FullConfig());
  ExpectSteps(bound, "own_sft_full_qwen2_qwen");
}

TEST(FirstStepsTest, Qwen3WithHeadNorms) {
  BoundModel bound = LoadBound(GoldenModel("tiny-qwen3"), FullConfig());
  ExpectSteps(bound, "own_sft_full_qwen3_qwen3");
}

TEST(FirstStepsTest, MistralWithSlidingWindow) {
  BoundModel bound = LoadBound(GoldenModel("tiny-mistral"), FullConfig());
  ExpectSteps(bound, "own_sft_full_mistral_mistral");
}

TEST(FirstStepsTest, PackedRowsSeeEachOther) {
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), FullConfig());
  ExpectSteps(bound, "own_sft_packing");
}

TEST(FirstStepsTest, NeatlyPackedRowsDoNot) {
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), FullConfig());
  ExpectSteps(bound, "own_sft_neat_packing");
}

TEST(FirstStepsTest, FreezeTrainsTheLastLayer) {
  TrainConfig config = FullConfig();
  config.finetuning.type = FinetuningType::kFreeze;
  config.finetuning.freeze.trainable_layers = 1;
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), config);
  ExpectSteps(bound, "own_sft_freeze");
}

TEST(FirstStepsTest, LoraContinuesAnAdapter) {
  BoundModel bound =
      LoadBound(GoldenModel("tiny-llama"), LoraConfig(GoldenModel("tiny-llama-adapter")));
  ExpectSteps(bound, "own_sft_lora");
}

TEST(FirstStepsTest, RankStabilizedLora) {
  BoundModel bound =
      LoadBound(GoldenModel("tiny-llama"), LoraConfig(GoldenModel("tiny-llama-adapter-rslora")));
  ExpectLogged(bound, "own_sft_lora", 8.041254043579102, 9.399701118469238);
}

// The gradient of B depends on A, so its norm shows that A was drawn as PEFT draws it.
TEST(FirstStepsTest, FreshLoraStartsAsPeftDoes) {
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), LoraConfig());
  ExpectLogged(bound, "own_sft_lora", 8.268360137939453, 1.811903476715088);
}

TEST(FirstStepsTest, FreshDoraStartsAsPeftDoes) {
  TrainConfig config = LoraConfig();
  config.finetuning.lora.use_dora = true;
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), config);
  ExpectLogged(bound, "own_sft_lora", 8.268360137939453, 1.89848792552948);
}

TEST(FirstStepsTest, LoraWithWholeModules) {
  TrainConfig config = LoraConfig();
  config.finetuning.lora.additional_target = {"embed_tokens", "lm_head"};
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), config);
  ExpectLogged(bound, "own_sft_lora", 8.268360137939453, 3.7374215126037598);
}

TEST(FirstStepsTest, LabelSmoothing) {
  TrainConfig config = FullConfig();
  config.training.label_smoothing_factor = 0.1;
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), config);
  ExpectLogged(bound, "own_sft_full", 16.492698669433594, 10.829221725463867);
}

TEST(FirstStepsTest, DynamicFineTuning) {
  TrainConfig config = FullConfig();
  config.finetuning.use_dft_loss = true;
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), config);
  ExpectLogged(bound, "own_sft_full", 0.002781519666314125, 0.0029221083968877792,
               {.loss = 2e-5, .gradient = 2e-4});
}

TEST(FirstStepsTest, FullInBFloat16) {
  TrainConfig config = FullConfig();
  config.training.precision = Precision::kBFloat16;
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), config);
  ExpectLogged(bound, "own_sft_full", 8.268767356872559, 5.763733386993408,
               {.loss = 1e-3, .gradient = 1e-2});
}

TEST(FirstStepsTest, LoraInBFloat16) {
  TrainConfig config = LoraConfig(GoldenModel("tiny-llama-adapter"));
  config.training.precision = Precision::kBFloat16;
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), config);
  ExpectLogged(bound, "own_sft_lora", 8.224539756774902, 3.349799871444702,
               {.loss = 1e-3, .gradient = 1e-2});
}

// In NEFTune the noise is not LLaMA-Factory's own, so only its size can agree.
TEST(FirstStepsTest, NeftuneAddsNoiseOfTheRightSize) {
  TrainConfig config = FullConfig();
  config.training.neftune_noise_alpha = 5;
  BoundModel bound = LoadBound(GoldenModel("tiny-llama"), config);
  ExpectLogged(bound, "own_sft_full", 8.24133586883545, 5.452549934387207,
               {.loss = 2e-2, .gradient = 1e-1});
}

}  // namespace
}  // namespace everstep
