// Rotary position embedding (Su et al., RoFormer): the angles of each position, with the scalings
// that stretch a model's context.
#ifndef EVERSTEP_WORKER_MODEL_ROPE_H_
#define EVERSTEP_WORKER_MODEL_ROPE_H_

#include <torch/torch.h>

#include <cstdint>

#include "worker/model/model_config.h"

namespace everstep {

// Rotation frequencies of each pair of a head's dimensions [head_dim / 2], fp32, in the operations
// of transformers' modeling_rope_utils. `positions` counts for dynamic scaling only.
torch::Tensor RopeFrequencies(const ModelConfig& config, int64_t positions);

// Factor on cos and sin: 1 but for YaRN.
double RopeAttentionFactor(const RopeConfig& rope);

// cos and sin of all angles, kept from pass to pass.
class RopeTable {
 public:
  // Makes the table hold positions 0 .. positions - 1.
  void Prepare(const ModelConfig& config, int64_t positions);

  const torch::Tensor& cos() const { return cos_; }  // [positions or more, head_dim / 2]
  const torch::Tensor& sin() const { return sin_; }

 private:
  torch::Tensor cos_, sin_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_ROPE_H_
