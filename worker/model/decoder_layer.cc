#include "worker/model/decoder_layer.h"

#include <ATen/CPUGeneratorImpl.h>

#include "worker/model/functions.h"

namespace everstep {
namespace {

using torch::Tensor;

// SplitMix64 (Steele et al., 2014): spreads small differences over all bits.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

Tensor Dropout(const Tensor& x, double probability, uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const Tensor keep = torch::empty(x.sizes(), torch::kFloat32)
                          .bernoulli_(1 - probability, generator)
                          .div_(1 - probability);
  return x * keep.to(x.scalar_type());
}

}  // namespace

uint64_t DrawSeed(const MicroBatchKey& key, int64_t place) {
  uint64_t seed = Mix(key.seed);
  seed = Mix(seed ^ static_cast<uint64_t>(key.step));
  seed = Mix(seed ^ static_cast<uint64_t>(key.logical_rank));
  seed = Mix(seed ^ static_cast<uint64_t>(key.accumulation));
  return Mix(seed ^ static_cast<uint64_t>(place));
}

Tensor AttentionMask(const PassContext& pass, int64_t window) {
  const bool windowed = window > 0 && pass.length > window;
  if (!windowed && !pass.segments.defined()) return {};
  const Tensor index = torch::arange(pass.length, torch::kInt64);
  const Tensor query = index.unsqueeze(1), key = index.unsqueeze(0);
  Tensor seen = key.le(query);
  if (windowed) seen = seen.logical_and(key.gt(query - window));
  seen = seen.unsqueeze(0);
  if (pass.segments.defined()) {
    const Tensor same = pass.segments.unsqueeze(2).eq(pass.segments.unsqueeze(1));
    // Padding sees at least itself: a query that sees nothing has no softmax.
    seen = seen.logical_and(same);
  }
  return seen.unsqueeze(1);
}

Tensor DecoderLayer::Forward(const Tensor& x, const PassContext& pass, bool input_gradient) {
  const Tensor h = RmsNorm(x, input_norm_, config_.rms_norm_eps, pass.compute_type, input_gradient);
  const Tensor middle = x + Attention(h, pass, input_gradient || input_norm_.trainable);
  const Tensor h2 = RmsNorm(middle, post_norm_, config_.rms_norm_eps, pass.compute_type);
  return middle + FeedForward(h2, pass);
}

Tensor DecoderLayer::Attention(const Tensor& h, const PassContext& pass, bool input_gradient) {
  const int64_t head_dim = config_.head_dim;
  Tensor q = Project(kQ, h, pass, input_gradient);
  Tensor k = Project(kK, h, pass, input_gradient);
  Tensor v = Project(kV, h, pass, input_gradient);
  if (config_.qk_norm) {
    q = RmsNorm(q.view({-1, head_dim}), q_norm_, config_.rms_norm_eps, pass.compute_type);
    k = RmsNorm(k.view({-1, head_dim}), k_norm_, config_.rms_norm_eps, pass.compute_type);
  }
  const auto shape = [&](const Tensor& t, int64_t heads) {
    return t.view({pass.batch, pass.length, heads * head_dim});
  };
  q = Rope(shape(q, config_.heads), head_dim, pass.cos, pass.sin, pass.positions);
  k = Rope(shape(k, config_.kv_heads), head_dim, pass.cos, pass.sin, pass.positions);
  v = v.view({pass.batch, pass.length, config_.kv_heads, head_dim}).transpose(1, 2);
  const Tensor mask = AttentionMask(pass, config_.WindowOf(index_));
  const Tensor out = at::scaled_dot_product_attention(
      q, k, v, mask.defined() ? std::optional<Tensor>(mask) : std::nullopt, /*dropout_p=*/0.0,
      /*is_causal=*/!mask.defined(), /*scale=*/std::nullopt,
      /*enable_gqa=*/config_.heads != config_.kv_heads);
  return Project(kO, out.transpose(1, 2).reshape({-1, config_.heads * head_dim}), pass);
}

Tensor DecoderLayer::FeedForward(const Tensor& h, const PassContext& pass) {
  const Tensor gate = Project(kGate, h, pass);
  const Tensor up = Project(kUp, h, pass);
  return Project(kDown, SwiGlu(gate, up), pass);
}

Tensor DecoderLayer::Project(int which, const Tensor& x, const PassContext& pass,
                             bool input_gradient) {
  Projection& projection = projections_[static_cast<size_t>(which)];
  if (projection.lora == nullptr) {
    return Linear(x, projection.weight, projection.bias, input_gradient);
  }
  LoraPath& lora = *projection.lora;
  Tensor side = x;
  if (pass.training && lora.dropout > 0) {
    side = Dropout(x, lora.dropout, DrawSeed(pass.key, index_ * kProjections + which));
  }
  if (lora.magnitude.defined()) return DoraProject(projection, x, side);
  return LoraLinear(x, side, projection.weight, projection.bias, lora.a, lora.b, lora.scaling,
                    input_gradient);
}

// magnitude / ||W + s B A|| * (W x + s B A x'), with the norm held constant (DoRA, section 4.3).
// The weights are variables of the graph here, whose gradients are views of the flat vector.
Tensor DecoderLayer::DoraProject(Projection& projection, const Tensor& x, const Tensor& side) {
  LoraPath& lora = *projection.lora;
  const auto variable = [](Weight& weight) {
    Tensor value = weight.value.detach();
    if (torch::GradMode::is_enabled()) {
      value.requires_grad_(true);
      value.mutable_grad() = weight.gradient;
    }
    return value;
  };
  const Tensor a = variable(lora.a), b = variable(lora.b), magnitude = variable(lora.magnitude);
  const auto type = x.scalar_type();
  Tensor norm;
  {
    const torch::NoGradGuard no_gradient;
    norm = (projection.weight.value.to(torch::kFloat32) + lora.scaling * at::mm(b, a))
               .norm(2, /*dim=*/1);
  }
  static Weight no_bias;  // the graph keeps its address
  const Tensor base = Linear(x, projection.weight, no_bias);
  const Tensor low = at::linear(at::linear(side, a.to(type)), b.to(type));
  Tensor y = (base + low * lora.scaling) * (magnitude / norm).to(type);
  if (projection.bias.defined()) y = y + projection.bias.compute;
  return y;
}

}  // namespace everstep
