// What all parts of the model share during one pass over a micro-batch.
#ifndef EVERSTEP_WORKER_MODEL_PASS_CONTEXT_H_
#define EVERSTEP_WORKER_MODEL_PASS_CONTEXT_H_

#include <torch/torch.h>

#include <cstdint>

#include "worker/kernels/arena.h"
#include "worker/model/token_batch.h"

namespace everstep {

// Names one micro-batch of the run. Every random draw is a function of it and of the place in
// the model, never of what was drawn before.
struct MicroBatchKey {
  uint64_t seed = 42;
  int64_t step = 0;
  int logical_rank = 0;
  int accumulation = 0;
};

// A seed for the numbers drawn at `place` (a number unique within the model).
uint64_t DrawSeed(const MicroBatchKey& key, int64_t place);
// Number `index` of the stream with this seed, uniform in [0, 1).
float DrawUniform(uint64_t seed, uint64_t index);

struct PassContext {
  const TokenBatch& batch;
  Arena& arena;
  // Of activations between matrix products. The residual stream and gradients of it are fp32.
  torch::ScalarType compute_type = torch::kFloat32;
  // cos and sin of each position's angles, [positions, head_dim / 2].
  torch::Tensor cos, sin;
  MicroBatchKey key;
  bool training = false;

  int64_t tokens() const { return batch.tokens(); }
  torch::Tensor Activation(int64_t columns) const {
    return arena.Take({tokens(), columns}, compute_type);
  }
  torch::Tensor Float(int64_t columns) const { return arena.Take({tokens(), columns}); }
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_PASS_CONTEXT_H_
