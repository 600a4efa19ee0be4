#include "worker/model/decoder_layer.h"

#include <utility>

#include "worker/kernels/attention.h"
#include "worker/kernels/gemm.h"
#include "worker/kernels/norm.h"
#include "worker/model/elementwise.h"

namespace everstep {

using torch::Tensor;

LayerActivations DecoderLayer::TakeActivations(const PassContext& pass) const {
  LayerActivations kept;
  kept.input_rstd = pass.arena.Take({pass.tokens()});
  kept.middle_rstd = pass.arena.Take({pass.tokens()});
  kept.q = pass.Activation(QColumns());
  kept.k = pass.Activation(KvColumns());
  kept.v = pass.Activation(KvColumns());
  kept.attended = pass.Activation(QColumns());
  kept.log_sums = pass.arena.Take({config_.heads, pass.tokens()});
  kept.middle = pass.Float(config_.hidden_size);
  kept.gate = pass.Activation(config_.intermediate_size);
  kept.up = pass.Activation(config_.intermediate_size);
  return kept;
}

int64_t DecoderLayer::ActivationBytesPerToken(torch::ScalarType compute_type) const {
  const int64_t activations = 2 * QColumns() + 2 * KvColumns() + 2 * config_.intermediate_size;
  const int64_t floats = 2 + config_.heads + config_.hidden_size;
  return activations * static_cast<int64_t>(c10::elementSize(compute_type)) + floats * 4;
}

AttentionShape DecoderLayer::Shape(const PassContext& pass) const {
  return {.sequences = pass.batch.sequences,
          .tokens = pass.tokens(),
          .heads = config_.heads,
          .kv_heads = config_.kv_heads,
          .head_dim = config_.head_dim,
          .window = config_.WindowOf(index_)};
}

void DecoderLayer::Forward(const Tensor& x, Tensor& y, LayerActivations& kept,
                           const PassContext& pass) const {
  kept.input = x;
  ForwardAttention(kept, pass);
  ForwardFeedForward(kept, y, pass);
}

void DecoderLayer::ForwardAttention(LayerActivations& kept, const PassContext& pass) const {
  const ArenaScope scope(pass.arena);
  Tensor h = pass.Activation(config_.hidden_size);
  RmsNormForward(kept.input, input_norm_.compute, config_.rms_norm_eps, h, kept.input_rstd);
  projection(kQ).Forward(h, kept.q, pass, Place(kQ));
  projection(kK).Forward(h, kept.k, pass, Place(kK));
  projection(kV).Forward(h, kept.v, pass, Place(kV));
  {
    const ArenaScope heads_scope(pass.arena);
    const Heads heads = PrepareHeads(kept, pass);
    const bool direct = kept.attended.scalar_type() == torch::kFloat32;
    Tensor out = direct ? kept.attended : pass.Float(QColumns());
    AttentionForward(Shape(pass), {.q = heads.q.const_data_ptr<float>(),
                                   .k = heads.k.const_data_ptr<float>(),
                                   .v = heads.v.const_data_ptr<float>(),
                                   .out = out.mutable_data_ptr<float>(),
                                   .log_sums = kept.log_sums.mutable_data_ptr<float>()});
    if (!direct) Convert(out, kept.attended);
  }
  Tensor out = pass.Activation(config_.hidden_size);
  projection(kO).Forward(kept.attended, out, pass, Place(kO));
  AddRows(kept.input, out, kept.middle);
}

DecoderLayer::Heads DecoderLayer::PrepareHeads(const LayerActivations& kept,
                                               const PassContext& pass) const {
  Heads heads;
  const int64_t d = config_.head_dim;
  const auto prepare = [&](const Tensor& projected, const Weight& norm, Tensor& rstd) {
    Tensor out = pass.Float(projected.size(1));
    if (!config_.qk_norm) {
      Rotate(projected, d, /*inverse=*/false, pass, out);
      return out;
    }
    const int64_t rows = projected.numel() / d;
    rstd = pass.arena.Take({rows});
    Tensor flat = out.view({rows, d});
    RmsNormForward(projected.view({rows, d}), norm.compute, config_.rms_norm_eps, flat, rstd);
    Rotate(out, d, /*inverse=*/false, pass, out);
    return out;
  };
  heads.q = prepare(kept.q, q_norm_, heads.q_rstd);
  heads.k = prepare(kept.k, k_norm_, heads.k_rstd);
  heads.v = AsFloat(kept.v, pass.arena);
  return heads;
}

void DecoderLayer::ForwardFeedForward(LayerActivations& kept, Tensor& y,
                                      const PassContext& pass) const {
  const ArenaScope scope(pass.arena);
  Tensor h = pass.Activation(config_.hidden_size);
  RmsNormForward(kept.middle, post_norm_.compute, config_.rms_norm_eps, h, kept.middle_rstd);
  projection(kGate).Forward(h, kept.gate, pass, Place(kGate));
  projection(kUp).Forward(h, kept.up, pass, Place(kUp));
  Tensor activated = pass.Activation(config_.intermediate_size);
  SwiGlu(kept.gate, kept.up, activated);
  projection(kDown).Forward(activated, h, pass, Place(kDown));
  AddRows(kept.middle, h, y);
}

void DecoderLayer::Backward(Tensor& gradient, LayerActivations& kept, bool input_gradient,
                            const PassContext& pass) {
  BackwardFeedForward(gradient, kept, pass);
  BackwardAttention(gradient, kept, input_gradient, pass);
}

namespace {

// The gradient of a projection's output, which the residual stream's gradient is, in compute type.
Tensor InComputeType(const Tensor& gradient, const PassContext& pass) {
  if (pass.compute_type == torch::kFloat32) return gradient;
  Tensor converted = pass.Activation(gradient.size(1));
  Convert(gradient, converted);
  return converted;
}

Tensor WeightGradient(const Weight& weight) {
  return weight.trainable ? weight.gradient : Tensor();
}

}  // namespace

void DecoderLayer::BackwardFeedForward(Tensor& gradient, LayerActivations& kept,
                                       const PassContext& pass) {
  const ArenaScope scope(pass.arena);
  const Tensor dy = InComputeType(gradient, pass);
  {
    const ArenaScope down_scope(pass.arena);
    Tensor activated = pass.Activation(config_.intermediate_size);
    Tensor d_activated = pass.Activation(config_.intermediate_size);
    SwiGlu(kept.gate, kept.up, activated);
    projection(kDown).Backward(activated, dy, &d_activated, /*accumulate=*/false, pass,
                               Place(kDown));
    SwiGluBackward(d_activated, kept.gate, kept.up);
  }
  Tensor h;
  if (projection(kGate).HasTrainable() || projection(kUp).HasTrainable()) {
    h = pass.Activation(config_.hidden_size);
    RmsNormForward(kept.middle, post_norm_.compute, config_.rms_norm_eps, h, kept.middle_rstd);
  }
  Tensor dh = pass.Float(config_.hidden_size);
  projection(kGate).Backward(h, kept.gate, &dh, /*accumulate=*/false, pass, Place(kGate));
  projection(kUp).Backward(h, kept.up, &dh, /*accumulate=*/true, pass, Place(kUp));
  RmsNormBackward({dh, kept.middle, post_norm_.compute, kept.middle_rstd}, gradient,
                  WeightGradient(post_norm_), pass.arena);
}

void DecoderLayer::BackwardAttention(Tensor& gradient, LayerActivations& kept, bool input_gradient,
                                     const PassContext& pass) {
  const ArenaScope scope(pass.arena);
  Heads gradients{pass.Float(QColumns()), pass.Float(KvColumns()), pass.Float(KvColumns()), {}, {}};
  {
    const ArenaScope attention_scope(pass.arena);
    Tensor d_attended = pass.Float(QColumns());
    projection(kO).Backward(kept.attended, InComputeType(gradient, pass), &d_attended,
                            /*accumulate=*/false, pass, Place(kO));
    const Heads heads = PrepareHeads(kept, pass);
    const Tensor attended = AsFloat(kept.attended, pass.arena);
    AttentionBackward(Shape(pass), {.q = heads.q.const_data_ptr<float>(),
                                    .k = heads.k.const_data_ptr<float>(),
                                    .v = heads.v.const_data_ptr<float>(),
                                    .out = attended.const_data_ptr<float>(),
                                    .log_sums = kept.log_sums.const_data_ptr<float>(),
                                    .d_out = d_attended.const_data_ptr<float>(),
                                    .d_q = gradients.q.mutable_data_ptr<float>(),
                                    .d_k = gradients.k.mutable_data_ptr<float>(),
                                    .d_v = gradients.v.mutable_data_ptr<float>()});
    BackwardHeads(kept, heads, gradients, pass);
  }
  BackwardInput(gradient, kept, gradients, input_gradient, pass);
}

// Through rotation and norm: gradients.q and .k become those of the projections.
void DecoderLayer::BackwardHeads(const LayerActivations& kept, const Heads& heads, Heads& gradients,
                                 const PassContext& pass) {
  const int64_t d = config_.head_dim;
  Rotate(gradients.q, d, /*inverse=*/true, pass, gradients.q);
  Rotate(gradients.k, d, /*inverse=*/true, pass, gradients.k);
  if (!config_.qk_norm) return;
  const auto through_norm = [&](Tensor& gradient, const Tensor& projected, const Weight& norm,
                                const Tensor& rstd) {
    const ArenaScope scope(pass.arena);
    const int64_t rows = projected.numel() / d;
    Tensor dx = pass.arena.Take({rows, d});
    dx.zero_();
    const Tensor dy = gradient.view({rows, d}), x = projected.view({rows, d});
    RmsNormBackward({dy, x, norm.compute, rstd}, dx, WeightGradient(norm), pass.arena);
    Convert(dx, gradient);
  };
  through_norm(gradients.q, kept.q, q_norm_, heads.q_rstd);
  through_norm(gradients.k, kept.k, k_norm_, heads.k_rstd);
}

void DecoderLayer::BackwardInput(Tensor& gradient, const LayerActivations& kept,
                                 const Heads& gradients, bool input_gradient,
                                 const PassContext& pass) {
  const bool needs_dh = input_gradient || input_norm_.trainable;
  Tensor h, dh;
  if (projection(kQ).HasTrainable() || projection(kK).HasTrainable() ||
      projection(kV).HasTrainable()) {
    h = pass.Activation(config_.hidden_size);
    Tensor rstd = kept.input_rstd;
    RmsNormForward(kept.input, input_norm_.compute, config_.rms_norm_eps, h, rstd);
  }
  if (needs_dh) dh = pass.Float(config_.hidden_size);
  bool first = true;
  for (const auto& [which, d] :
       {std::pair<int, const Tensor&>{kQ, gradients.q}, {kK, gradients.k}, {kV, gradients.v}}) {
    projection(which).Backward(h, InComputeType(d, pass), needs_dh ? &dh : nullptr, !first, pass,
                               Place(which));
    first = false;
  }
  if (needs_dh) {
    RmsNormBackward({dh, kept.input, input_norm_.compute, kept.input_rstd}, gradient,
                    WeightGradient(input_norm_), pass.arena);
  }
}

}  // namespace everstep
