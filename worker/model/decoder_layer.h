// One transformer layer of the Llama family: attention and feed-forward, each behind an RMS norm.
#ifndef EVERSTEP_WORKER_MODEL_DECODER_LAYER_H_
#define EVERSTEP_WORKER_MODEL_DECODER_LAYER_H_

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <memory>

#include "worker/kernels/weight.h"
#include "worker/model/model_config.h"

namespace everstep {

// Names one micro-batch of the run. Every random draw is a function of it and of the place in
// the model, never of what was drawn before.
struct MicroBatchKey {
  uint64_t seed = 42;
  int64_t step = 0;
  int logical_rank = 0;
  int accumulation = 0;
};
// A seed for the generator at `place` (a number unique within the model).
uint64_t DrawSeed(const MicroBatchKey& key, int64_t place);

// The low-rank side path of a projection.
struct LoraPath {
  Weight a;          // [r, in]
  Weight b;          // [out, r]
  Weight magnitude;  // [out], DoRA only (Liu et al., DoRA, eq. 5)
  double scaling = 1;
  double dropout = 0;
};

struct Projection {
  Weight weight;  // [out, in]
  Weight bias;    // [out], or undefined
  std::unique_ptr<LoraPath> lora;
};

// What all layers share during one pass over a micro-batch.
struct PassContext {
  int64_t batch = 0;
  int64_t length = 0;
  torch::ScalarType compute_type = torch::kFloat32;
  torch::Tensor cos, sin;   // [positions, head_dim / 2]
  torch::Tensor positions;  // [batch, length] int64
  torch::Tensor segments;   // [batch, length] int32, or undefined: plain causal attention
  MicroBatchKey key;
  bool training = false;
};

class DecoderLayer {
 public:
  enum ProjectionIndex { kQ, kK, kV, kO, kGate, kUp, kDown, kProjections };
  static constexpr std::array<const char*, kProjections> kProjectionNames{
      "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
      "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};

  DecoderLayer(const ModelConfig& config, int64_t index) : config_(config), index_(index) {}

  // x [tokens, hidden] -> [tokens, hidden]. `input_gradient` off: nothing below needs gradients.
  torch::Tensor Forward(const torch::Tensor& x, const PassContext& pass, bool input_gradient);

  Projection& projection(int which) { return projections_[static_cast<size_t>(which)]; }
  Weight& input_norm() { return input_norm_; }
  Weight& post_norm() { return post_norm_; }
  Weight& q_norm() { return q_norm_; }
  Weight& k_norm() { return k_norm_; }

 private:
  torch::Tensor Attention(const torch::Tensor& h, const PassContext& pass, bool input_gradient);
  torch::Tensor FeedForward(const torch::Tensor& h, const PassContext& pass);
  torch::Tensor Project(int which, const torch::Tensor& x, const PassContext& pass,
                        bool input_gradient = true);
  torch::Tensor DoraProject(Projection& projection, const torch::Tensor& x,
                            const torch::Tensor& side);

  const ModelConfig& config_;
  int64_t index_;
  std::array<Projection, kProjections> projections_;
  Weight input_norm_, post_norm_, q_norm_, k_norm_;
};

// Which keys a query sees, as SDPA takes it: [batch or 1, 1, length, length] bool, true = seen.
// Undefined when plain causal attention is all that is needed.
torch::Tensor AttentionMask(const PassContext& pass, int64_t window);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_DECODER_LAYER_H_
