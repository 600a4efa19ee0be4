// The gradient that is compared between processes and histories.
#ifndef EVERSTEP_TESTS_UNIT_WORKER_MODEL_SAMPLE_GRADIENT_H_
#define EVERSTEP_TESTS_UNIT_WORKER_MODEL_SAMPLE_GRADIENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/worker/model/bound_model.h"

namespace everstep {

inline constexpr int64_t kSampleVocab = 2048;

// LoRA with dropout and NEFTune's noise: with random draws everywhere.
TrainConfig DropoutConfig();
// full_fp32, lora_fp32, full_bf16 or lora_bf16.
TrainConfig ConfigOfVariant(const std::string& variant);

// B is zero at first: random values make every gradient count.
void Randomize(BoundModel& bound);
std::vector<float> Bits(const torch::Tensor& t);

// Of one and the same micro-batch, after others of these lengths.
std::vector<float> SampleGradient(const TrainConfig& config,
                                  const std::vector<std::vector<int32_t>>& before = {});

}  // namespace everstep

#endif  // EVERSTEP_TESTS_UNIT_WORKER_MODEL_SAMPLE_GRADIENT_H_
