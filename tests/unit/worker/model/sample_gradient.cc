#include "tests/unit/worker/model/sample_gradient.h"

namespace everstep {

TrainConfig DropoutConfig() {
  TrainConfig config = LoraConfig();
  config.finetuning.lora.dropout = 0.2;
  config.training.neftune_noise_alpha = 5;
  return config;
}

TrainConfig ConfigOfVariant(const std::string& variant) {
  TrainConfig config = variant.starts_with("lora") ? DropoutConfig() : FullConfig();
  if (variant.ends_with("bf16")) config.training.precision = Precision::kBFloat16;
  return config;
}

void Randomize(BoundModel& bound) {
  torch::manual_seed(11);
  bound.parameters.normal_(0, 0.05);
  bound.model->AfterUpdate();
}

std::vector<float> Bits(const torch::Tensor& t) {
  return {t.const_data_ptr<float>(), t.const_data_ptr<float>() + t.numel()};
}

std::vector<float> SampleGradient(const TrainConfig& config,
                                  const std::vector<std::vector<int32_t>>& before) {
  BoundModel bound = LoadBound(GoldenModel("tiny-qwen3"), config);
  Randomize(bound);
  uint64_t seed = 100;
  for (const std::vector<int32_t>& lengths : before) {
    bound.Compute({MakeBatch(lengths, kSampleVocab, seed++)});
  }
  bound.Compute({MakeBatch({70, 33, 129}, kSampleVocab, 5)});
  return Bits(bound.gradient);
}

}  // namespace everstep
