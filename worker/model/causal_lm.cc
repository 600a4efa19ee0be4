#include "worker/model/causal_lm.h"

#include <ATen/CPUGeneratorImpl.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "worker/model/functions.h"

namespace everstep {
namespace {

using torch::Tensor;

// Place numbers of random draws outside the layers' own.
constexpr int64_t kNeftunePlace = -1;

Tensor Int64Tensor(const std::vector<int64_t>& values, int64_t rows, int64_t cols) {
  return torch::tensor(values, torch::kInt64).view({rows, cols});
}

// Recomputes a layer in the backward pass instead of keeping its activations.
struct CheckpointFunction : torch::autograd::Function<CheckpointFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        int64_t layer_address, int64_t pass_address, bool input_gradient) {
    context->save_for_backward({x});
    context->saved_data["layer"] = layer_address;
    context->saved_data["pass"] = pass_address;
    context->saved_data["input_gradient"] = input_gradient;
    return reinterpret_cast<DecoderLayer*>(layer_address)
        ->Forward(x, *reinterpret_cast<const PassContext*>(pass_address), input_gradient);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* layer = reinterpret_cast<DecoderLayer*>(context->saved_data["layer"].toInt());
    const auto* pass = reinterpret_cast<const PassContext*>(context->saved_data["pass"].toInt());
    const torch::AutoGradMode with_gradients(true);
    Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    const Tensor y = layer->Forward(x, *pass, context->saved_data["input_gradient"].toBool());
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

void ConfigureAllocator() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2047 << 20);
  mallopt(M_TOP_PAD, 64 << 20);
}

void CausalLm::BindFlat(torch::Tensor flat, const FlatLayout& layout) {
  const torch::NoGradGuard no_gradient;
  layout_ = layout;
  EVERSTEP_CHECK(layout.entries.size() == trained_.size());
  for (size_t i = 0; i < trained_.size(); ++i) {
    const LayoutEntry& entry = layout.entries[i];
    Tensor view = flat.narrow(0, entry.offset, entry.numel).view(entry.shape);
    view.copy_(trained_[i].second->value);
    trained_[i].second->value = view;
    trainable_[i].value = view;
  }
  AfterUpdate();
}

void CausalLm::AfterUpdate() {
  const torch::NoGradGuard no_gradient;
  for (auto& [name, weight] : trained_) weight->Refresh(compute_type_);
}

void CausalLm::PrepareRope(int64_t positions) {
  if (cos_.defined() && cos_.size(0) >= positions) return;
  const std::vector<double> frequencies = RopeFrequencies(config_.rope, config_.head_dim);
  const Tensor frequency = torch::tensor(frequencies, torch::kFloat64).to(torch::kFloat32);
  const Tensor angles =
      torch::outer(torch::arange(positions, torch::kInt64).to(torch::kFloat32), frequency);
  cos_ = angles.cos();
  sin_ = angles.sin();
}

PassContext CausalLm::MakePass(const MicroBatch& batch) {
  PassContext pass;
  pass.batch = batch.rows;
  pass.length = batch.cols;
  pass.compute_type = compute_type_;
  if (batch.positions.empty()) {
    pass.positions = torch::arange(batch.cols, torch::kInt64).repeat({batch.rows, 1});
  } else {
    pass.positions = Int64Tensor(batch.positions, batch.rows, batch.cols);
  }
  PrepareRope(batch.cols);
  pass.cos = cos_;
  pass.sin = sin_;
  if (!batch.segments.empty()) {
    pass.segments = torch::tensor(batch.segments, torch::kInt32).view({batch.rows, batch.cols});
  }
  return pass;
}

Tensor CausalLm::Embed(const MicroBatch& batch, const PassContext& pass) {
  const Tensor ids = torch::tensor(batch.ids, torch::kInt64);
  Tensor x = Embedding(ids, embedding_);
  if (pass.training && neftune_alpha_ > 0) {
    // Uniform noise of alpha / sqrt(length * hidden) (Jain et al., NEFTune, algorithm 1).
    const double magnitude =
        neftune_alpha_ / std::sqrt(static_cast<double>(pass.length * config_.hidden_size));
    const at::Generator generator =
        at::detail::createCPUGenerator(DrawSeed(pass.key, kNeftunePlace));
    x = x + torch::empty_like(x, torch::kFloat32)
                .uniform_(-magnitude, magnitude, generator)
                .to(x.scalar_type());
  }
  return x;
}

Tensor CausalLm::RunLayer(DecoderLayer& layer, const Tensor& x, const PassContext& pass,
                          bool input_gradient) {
  if (!checkpointing_ || !torch::GradMode::is_enabled()) {
    return layer.Forward(x, pass, input_gradient);
  }
  return CheckpointFunction::apply(x, reinterpret_cast<int64_t>(&layer),
                                   reinterpret_cast<int64_t>(&pass), input_gradient);
}

Tensor CausalLm::Hidden(const MicroBatch& batch, const PassContext& pass) {
  const bool gradients = torch::GradMode::is_enabled();
  Tensor x;
  size_t index = 0;
  {
    // What has nothing to train below it leaves no trace for the backward pass.
    const torch::AutoGradMode mode(gradients && embedding_.trainable);
    x = Embed(batch, pass);
    for (; index < first_trained_layer_; ++index) x = RunLayer(*layers_[index], x, pass, false);
  }
  if (gradients && !x.requires_grad()) x = x.detach().requires_grad_(true);
  for (; index < layers_.size(); ++index) {
    const bool input_gradient = index > first_trained_layer_ || embedding_.trainable;
    x = RunLayer(*layers_[index], x, pass, input_gradient);
  }
  return RmsNorm(x, final_norm_, config_.rms_norm_eps, compute_type_);
}

namespace {

// Tokens whose successor has a label: their places in the flattened batch, and those labels. The
// first label of a row is predicted by nothing.
struct Targets {
  std::vector<int64_t> places;
  std::vector<int64_t> labels;
  std::vector<int64_t> per_row;
};

Targets TargetsOf(const MicroBatch& batch) {
  Targets targets;
  for (int64_t row = 0; row < batch.rows; ++row) {
    const size_t before = targets.places.size();
    for (int64_t t = 1; t < batch.cols; ++t) {
      const int64_t label = batch.labels[static_cast<size_t>(row * batch.cols + t)];
      if (label == kIgnoreLabel) continue;
      targets.places.push_back(row * batch.cols + t - 1);
      targets.labels.push_back(label);
    }
    targets.per_row.push_back(static_cast<int64_t>(targets.places.size() - before));
  }
  return targets;
}

}  // namespace

Result<PassResult> CausalLm::ForwardBackward(const MicroBatch& batch, const MicroBatchKey& key,
                                             Tensor flat_gradient, double weight) {
  const Targets targets = TargetsOf(batch);
  PassResult result;
  result.scored_tokens = static_cast<int64_t>(targets.labels.size());
  if (targets.labels.empty()) return result;
  for (size_t i = 0; i < trained_.size(); ++i) {
    const LayoutEntry& entry = layout_.entries[i];
    trained_[i].second->gradient =
        flat_gradient.narrow(0, entry.offset, entry.numel).view(entry.shape);
  }
  PassContext pass = MakePass(batch);
  pass.key = key;
  pass.training = true;
  if (loss_.normalization() == LossNormalization::kMicroBatchMeans) {
    weight /= static_cast<double>(result.scored_tokens);
  }
  try {
    const Tensor hidden = Hidden(batch, pass);
    const Tensor scored = hidden.index_select(0, torch::tensor(targets.places, torch::kInt64));
    const TokenLossResult loss =
        ComputeTokenLoss(loss_, scored, torch::tensor(targets.labels, torch::kInt64),
                         output_projection(), weight, /*want_correct=*/false);
    loss.loss.backward();
    result.loss_sum = loss.loss.item<double>();
  } catch (const std::exception& e) {
    return Internal(std::string("forward or backward pass: ") + e.what());
  }
  if (loss_.normalization() == LossNormalization::kMicroBatchMeans) {
    result.loss_sum /= static_cast<double>(result.scored_tokens);
  }
  return result;
}

Result<EvaluationPass> CausalLm::Evaluate(const MicroBatch& batch, bool want_accuracy) {
  const torch::NoGradGuard no_gradient;
  const Targets targets = TargetsOf(batch);
  EvaluationPass result;
  result.scored_tokens = static_cast<int64_t>(targets.labels.size());
  result.row_accuracy.assign(static_cast<size_t>(batch.rows), 0.0);
  if (targets.labels.empty()) return result;
  try {
    const Tensor hidden = Hidden(batch, MakePass(batch));
    const Tensor scored = hidden.index_select(0, torch::tensor(targets.places, torch::kInt64));
    const TokenLossResult loss =
        ComputeTokenLoss(TokenLoss{}, scored, torch::tensor(targets.labels, torch::kInt64),
                         output_projection(), 1, want_accuracy);
    result.loss_sum = loss.loss.item<double>();
    int64_t first = 0;
    for (size_t row = 0; want_accuracy && row < targets.per_row.size(); ++row) {
      const int64_t count = targets.per_row[row];
      if (count > 0) {
        result.row_accuracy[row] =
            loss.correct.narrow(0, first, count).to(torch::kFloat64).mean().item<double>();
      }
      first += count;
    }
  } catch (const std::exception& e) {
    return Internal(std::string("evaluation pass: ") + e.what());
  }
  return result;
}

Tensor CausalLm::Logits(const MicroBatch& batch) {
  const torch::NoGradGuard no_gradient;
  const Tensor hidden = Hidden(batch, MakePass(batch));
  return at::linear(hidden, output_projection().compute)
      .to(torch::kFloat32)
      .view({batch.rows, batch.cols, -1});
}

}  // namespace everstep
