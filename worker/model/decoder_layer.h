// One transformer layer of the Llama family: attention and feed-forward, each behind an RMS norm.
// The backward pass is written out; there is no autograd.
#ifndef EVERSTEP_WORKER_MODEL_DECODER_LAYER_H_
#define EVERSTEP_WORKER_MODEL_DECODER_LAYER_H_

#include <torch/torch.h>

#include <array>
#include <cstdint>

#include "worker/kernels/weight.h"
#include "worker/model/model_config.h"
#include "worker/model/pass_context.h"
#include "worker/model/projection.h"

namespace everstep {

// What the backward pass of a layer needs from its forward pass. [tokens, ...], in the arena.
struct LayerActivations {
  torch::Tensor input;                    // fp32: the residual stream on entry
  torch::Tensor input_rstd, middle_rstd;  // [tokens]
  torch::Tensor q, k, v;                  // as projected: before norm and rotation
  torch::Tensor attended;                 // input of o_proj
  torch::Tensor log_sums;                 // [heads, tokens]
  torch::Tensor middle;                   // fp32: the residual stream between the two parts
  torch::Tensor gate, up;
};

class DecoderLayer {
 public:
  enum ProjectionIndex { kQ, kK, kV, kO, kGate, kUp, kDown, kProjections };
  static constexpr std::array<const char*, kProjections> kProjectionNames{
      "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
      "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};

  DecoderLayer(const ModelConfig& config, int64_t index) : config_(config), index_(index) {}

  // Memory for one layer's activations. `input` is set by Forward.
  LayerActivations TakeActivations(const PassContext& pass) const;
  // What TakeActivations takes, per token.
  int64_t ActivationBytesPerToken(torch::ScalarType compute_type) const;

  // x -> y, both fp32 [tokens, hidden] and not the same; x stays in use as kept.input.
  void Forward(const torch::Tensor& x, torch::Tensor& y, LayerActivations& kept,
               const PassContext& pass) const;
  // `gradient` (fp32 [tokens, hidden]) is that of y, and becomes that of x; with `input_gradient`
  // off, what is below needs none and its content is undefined afterwards. kept.gate and kept.up
  // are overwritten.
  void Backward(torch::Tensor& gradient, LayerActivations& kept, bool input_gradient,
                const PassContext& pass);

  Projection& projection(int which) { return projections_[static_cast<size_t>(which)]; }
  Weight& input_norm() { return input_norm_; }
  Weight& post_norm() { return post_norm_; }
  Weight& q_norm() { return q_norm_; }
  Weight& k_norm() { return k_norm_; }

 private:
  // Queries, keys and values as attention takes them, fp32.
  struct Heads {
    torch::Tensor q, k, v;
    torch::Tensor q_rstd, k_rstd;  // [tokens * heads], with q/k norm
  };

  const Projection& projection(int which) const { return projections_[static_cast<size_t>(which)]; }
  int64_t Place(int which) const { return index_ * kProjections + which; }
  int64_t QColumns() const { return config_.heads * config_.head_dim; }
  int64_t KvColumns() const { return config_.kv_heads * config_.head_dim; }
  AttentionShape Shape(const PassContext& pass) const;
  Heads PrepareHeads(const LayerActivations& kept, const PassContext& pass) const;

  void ForwardAttention(LayerActivations& kept, const PassContext& pass) const;
  void ForwardFeedForward(LayerActivations& kept, torch::Tensor& y, const PassContext& pass) const;
  void BackwardFeedForward(torch::Tensor& gradient, LayerActivations& kept,
                           const PassContext& pass);
  void BackwardAttention(torch::Tensor& gradient, LayerActivations& kept, bool input_gradient,
                         const PassContext& pass);
  void BackwardHeads(const LayerActivations& kept, const Heads& heads, Heads& gradients,
                     const PassContext& pass);
  void BackwardInput(torch::Tensor& gradient, const LayerActivations& kept, const Heads& gradients,
                     bool input_gradient, const PassContext& pass);

  const ModelConfig& config_;
  int64_t index_;
  std::array<Projection, kProjections> projections_;
  Weight input_norm_, post_norm_, q_norm_, k_norm_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_DECODER_LAYER_H_
