// A model under test, bound to flat vectors of its own as the trainer binds it.
#ifndef EVERSTEP_TESTS_UNIT_WORKER_MODEL_BOUND_MODEL_H_
#define EVERSTEP_TESTS_UNIT_WORKER_MODEL_BOUND_MODEL_H_

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "common/json.h"
#include "worker/config/train_config.h"
#include "worker/data/collate.h"
#include "worker/model/causal_lm.h"
#include "worker/parallel/layout.h"

namespace everstep {

struct BoundModel {
  std::unique_ptr<CausalLm> model;
  FlatLayout layout;
  torch::Tensor parameters;
  torch::Tensor gradient;

  // The part of the gradient that belongs to the parameter of this name.
  torch::Tensor GradientOf(const std::string& name) const;
  // Zeroes the gradient and computes it for these micro-batches; returns the sum of their losses.
  double Compute(const std::vector<MicroBatch>& batches, double scale = 1);
};

// Full finetuning in fp32 with seed 42, without gradient checkpointing.
TrainConfig FullConfig();
TrainConfig LoraConfig(const std::string& adapter = "");

BoundModel LoadBound(const std::string& directory, const TrainConfig& config);
// tests/golden/models/`name`.
std::string GoldenModel(const std::string& name);

// The micro-batches of one step in tests/golden/first_steps.
struct GoldenStep {
  std::vector<MicroBatch> batches;
  double label_tokens = 0;
  double loss = 0;  // as LLaMA-Factory logs it
  double total_norm = 0;
  Json gradient_norms;
  Json gradient_sums;
};
std::vector<GoldenStep> LoadGoldenSteps(const std::string& name);

// A micro-batch of `rows` rows with the given lengths and made-up ids, labels on every token.
MicroBatch MakeBatch(const std::vector<int32_t>& lengths, int64_t vocab_size, uint64_t seed);

}  // namespace everstep

#endif  // EVERSTEP_TESTS_UNIT_WORKER_MODEL_BOUND_MODEL_H_
