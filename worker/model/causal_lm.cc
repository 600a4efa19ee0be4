#include "worker/model/causal_lm.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "worker/kernels/gemm.h"
#include "worker/kernels/norm.h"
#include "worker/kernels/tensor_rows.h"

namespace everstep {
namespace {

using torch::Tensor;

// Place number of NEFTune's draws, outside the layers' own.
constexpr int64_t kNeftunePlace = -1;

// to[i] = from[rows[i]], fp32.
void GatherRows(const Tensor& from, const std::vector<int64_t>& rows, Tensor& to) {
  const int64_t columns = from.size(1);
  const RowReader reader(from, columns);
  const RowWriter writer(to, columns);
  ForRows(to.size(0), columns, [&](int64_t row) {
    rows::ToFloat(reader.Row(rows[static_cast<size_t>(row)], ScratchRow(0, columns)),
                  writer.Row(row, nullptr), static_cast<size_t>(columns));
  });
}

// to[rows[i]] = from[i], zero elsewhere. `rows` has no duplicates.
void ScatterRows(const Tensor& from, const std::vector<int64_t>& rows, Tensor& to) {
  const int64_t columns = from.size(1);
  to.zero_();
  const RowReader reader(from, columns);
  const RowWriter writer(to, columns);
  ForRows(from.size(0), columns, [&](int64_t row) {
    rows::ToFloat(reader.Row(row, nullptr), writer.Row(rows[static_cast<size_t>(row)], nullptr),
                  static_cast<size_t>(columns));
  });
}

}  // namespace

void ConfigureAllocator() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2047 << 20);
  mallopt(M_TOP_PAD, 64 << 20);
}

void CausalLm::BindFlat(Tensor flat, const FlatLayout& layout) {
  const torch::NoGradGuard no_gradient;
  layout_ = layout;
  EVERSTEP_CHECK(layout.entries.size() == trained_.size());
  EVERSTEP_CHECK(reinterpret_cast<uintptr_t>(flat.const_data_ptr()) % 64 == 0);
  for (size_t i = 0; i < trained_.size(); ++i) {
    const LayoutEntry& entry = layout.entries[i];
    Tensor view = flat.narrow(0, entry.offset, entry.numel).view(entry.shape);
    view.copy_(trained_[i].second->value);
    trained_[i].second->value = view;
    // What is there may be a view of the mapped file.
    trained_[i].second->compute = Tensor();
    trainable_[i].value = view;
  }
  const auto weights = BaseWeights();
  const bool all_moved =
      std::ranges::all_of(weights, [](const NamedWeight& n) { return n.weight->trainable; });
  if (all_moved) files_.reset();
  RefreshAll();
}

void CausalLm::AfterUpdate() { RefreshAll(); }

void CausalLm::RefreshAll() {
  const torch::NoGradGuard no_gradient;
  // The embedding is multiplied with only where it is the output projection too.
  output_projection().Refresh(compute_type_);
  final_norm_.Refresh(torch::kFloat32);
  for (const auto& layer : layers_) {
    for (Weight* norm :
         {&layer->input_norm(), &layer->post_norm(), &layer->q_norm(), &layer->k_norm()}) {
      norm->Refresh(torch::kFloat32);
    }
    for (int which = 0; which < DecoderLayer::kProjections; ++which) {
      Projection& projection = layer->projection(which);
      if (projection.HasTrainable() || !projection.weight.compute.defined()) {
        projection.Refresh(compute_type_);
      }
    }
  }
}

PassContext CausalLm::MakePass(const TokenBatch& tokens) {
  arena_.Reset();
  int64_t positions = 1;
  for (int64_t position : tokens.positions) positions = std::max(positions, position + 1);
  rope_.Prepare(config_, positions);
  return {.batch = tokens,
          .arena = arena_,
          .compute_type = compute_type_,
          .cos = rope_.cos(),
          .sin = rope_.sin(),
          .key = {},
          .training = false};
}

void CausalLm::PointGradients(const Tensor& flat_gradient) {
  EVERSTEP_CHECK(flat_gradient.numel() == layout_.size);
  EVERSTEP_CHECK(reinterpret_cast<uintptr_t>(flat_gradient.const_data_ptr()) % 64 == 0);
  for (size_t i = 0; i < trained_.size(); ++i) {
    const LayoutEntry& entry = layout_.entries[i];
    trained_[i].second->gradient =
        flat_gradient.narrow(0, entry.offset, entry.numel).view(entry.shape);
  }
}

Tensor CausalLm::Embed(const PassContext& pass) {
  Tensor x = pass.Float(config_.hidden_size);
  GatherRows(embedding_.value, pass.batch.ids, x);
  if (!pass.training || neftune_alpha_ <= 0) return x;
  // Uniform noise of alpha / sqrt(length * hidden) (Jain et al., NEFTune, algorithm 1). The length
  // is the padded one, as in transformers.
  const int64_t hidden = config_.hidden_size;
  const auto magnitude =
      static_cast<float>(neftune_alpha_ / std::sqrt(static_cast<double>(pass.batch.cols * hidden)));
  const uint64_t seed = DrawSeed(pass.key, kNeftunePlace);
  float* values = x.mutable_data_ptr<float>();
  ForRows(pass.tokens(), hidden, [&](int64_t row) {
    const auto first = static_cast<uint64_t>(pass.batch.places[static_cast<size_t>(row)] * hidden);
    for (int64_t i = 0; i < hidden; ++i) {
      const float uniform = DrawUniform(seed, first + static_cast<uint64_t>(i));
      values[row * hidden + i] += magnitude * (2.0f * uniform - 1.0f);
    }
  });
  return x;
}

size_t CausalLm::FirstKeptLayer(const PassContext& pass) const {
  if (!checkpointing_ || layers_.empty()) return first_trained_layer_;
  const int64_t bytes =
      std::max<int64_t>(1, pass.tokens() * layers_[0]->ActivationBytesPerToken(compute_type_));
  const auto fitting = static_cast<size_t>(activation_budget_bytes_ / bytes);
  return std::max(first_trained_layer_, layers_.size() - std::min(fitting, layers_.size()));
}

Tensor CausalLm::ForwardLayers(const PassContext& pass, std::vector<LayerTrace>* traces) {
  Tensor x = Embed(pass);
  const size_t traced = traces == nullptr ? layers_.size() : first_trained_layer_;
  const size_t first_kept = FirstKeptLayer(pass);
  // Without a trace, two buffers take turns.
  Tensor spare = traced > 0 ? pass.Float(config_.hidden_size) : Tensor();
  for (size_t i = 0; i < traced; ++i) {
    const ArenaScope scope(arena_);
    LayerActivations kept = layers_[i]->TakeActivations(pass);
    layers_[i]->Forward(x, spare, kept, pass);
    std::swap(x, spare);
  }
  for (size_t i = traced; i < layers_.size(); ++i) {
    LayerTrace trace{.input = x, .kept = {}, .is_kept = i >= first_kept};
    Tensor y = pass.Float(config_.hidden_size);
    if (trace.is_kept) {
      trace.kept = layers_[i]->TakeActivations(pass);
      layers_[i]->Forward(x, y, trace.kept, pass);
    } else {
      const ArenaScope scope(arena_);
      LayerActivations passing = layers_[i]->TakeActivations(pass);
      layers_[i]->Forward(x, y, passing, pass);
    }
    traces->push_back(std::move(trace));
    x = y;
  }
  return x;
}

void CausalLm::BackwardLayers(Tensor& gradient, std::vector<LayerTrace>& traces,
                              const PassContext& pass) {
  for (size_t i = layers_.size(); i-- > first_trained_layer_;) {
    const ArenaScope scope(arena_);
    LayerTrace& trace = traces[i - first_trained_layer_];
    if (!trace.is_kept) {
      trace.kept = layers_[i]->TakeActivations(pass);
      Tensor unused = pass.Float(config_.hidden_size);
      layers_[i]->Forward(trace.input, unused, trace.kept, pass);
    }
    const bool input_gradient = i > first_trained_layer_ || embedding_.trainable;
    layers_[i]->Backward(gradient, trace.kept, input_gradient, pass);
  }
}

// Every thread owns a range of columns and adds all tokens' rows to it, in their order.
void CausalLm::BackwardEmbedding(const Tensor& gradient, const PassContext& pass) {
  const int64_t hidden = config_.hidden_size;
  const float* from = gradient.const_data_ptr<float>();
  float* to = embedding_.gradient.mutable_data_ptr<float>();
  at::parallel_for(0, hidden, 64, [&](int64_t begin, int64_t end) {
    for (int64_t token = 0; token < pass.tokens(); ++token) {
      const int64_t id = pass.batch.ids[static_cast<size_t>(token)];
      rows::AddTo(from + token * hidden + begin, to + id * hidden + begin,
                  static_cast<size_t>(end - begin));
    }
  });
}

double CausalLm::LossAndGradients(const PassContext& pass, double weight) {
  std::vector<LayerTrace> traces;
  const Tensor x = ForwardLayers(pass, &traces);
  const auto scored = static_cast<int64_t>(pass.batch.scored.size());
  const int64_t hidden = config_.hidden_size;
  Tensor gradient = pass.Float(hidden);
  double loss = 0;
  {
    const ArenaScope scope(arena_);
    Tensor last = arena_.Take({scored, hidden}), rstd = arena_.Take({scored});
    GatherRows(x, pass.batch.scored, last);
    Tensor normed = arena_.Take({scored, hidden}, compute_type_);
    RmsNormForward(last, final_norm_.compute, config_.rms_norm_eps, normed, rstd);
    Tensor d_normed = arena_.Take({scored, hidden}), d_last = arena_.Take({scored, hidden});
    loss = ComputeTokenLoss(loss_, normed,
                            {.projection = output_projection(),
                             .labels = pass.batch.labels,
                             .scale = weight,
                             .d_hidden = &d_normed},
                            arena_);
    d_last.zero_();
    RmsNormBackward({d_normed, last, final_norm_.compute, rstd}, d_last,
                    final_norm_.trainable ? final_norm_.gradient : Tensor(), arena_);
    ScatterRows(d_last, pass.batch.scored, gradient);
  }
  BackwardLayers(gradient, traces, pass);
  if (embedding_.trainable) BackwardEmbedding(gradient, pass);
  return loss;
}

Result<PassResult> CausalLm::ForwardBackward(const MicroBatch& batch, const MicroBatchKey& key,
                                             Tensor flat_gradient, double weight) {
  const torch::NoGradGuard no_gradient;
  ASSIGN_OR_RETURN(const TokenBatch tokens,
                   MakeTokenBatch(batch, config_.vocab_size, /*every_token=*/false));
  PassResult result;
  result.scored_tokens = static_cast<int64_t>(tokens.labels.size());
  if (tokens.labels.empty()) return result;
  const bool means = loss_.normalization() == LossNormalization::kMicroBatchMeans;
  const double share = means ? 1.0 / static_cast<double>(result.scored_tokens) : 1.0;
  try {
    PointGradients(flat_gradient);
    PassContext pass = MakePass(tokens);
    pass.key = key;
    pass.training = true;
    result.loss_sum = LossAndGradients(pass, weight * share) * share;
  } catch (const std::exception& e) {
    return Internal(std::string("forward or backward pass: ") + e.what());
  }
  return result;
}

Result<EvaluationPass> CausalLm::Evaluate(const MicroBatch& batch, bool want_accuracy) {
  const torch::NoGradGuard no_gradient;
  ASSIGN_OR_RETURN(const TokenBatch tokens,
                   MakeTokenBatch(batch, config_.vocab_size, /*every_token=*/false));
  EvaluationPass result;
  result.scored_tokens = static_cast<int64_t>(tokens.labels.size());
  std::vector<bool> correct;
  try {
    if (result.scored_tokens > 0) {
      const PassContext pass = MakePass(tokens);
      const Tensor x = ForwardLayers(pass, nullptr);
      Tensor last = arena_.Take({result.scored_tokens, config_.hidden_size});
      GatherRows(x, tokens.scored, last);
      Tensor normed = arena_.Take(last.sizes(), compute_type_);
      Tensor rstd = arena_.Take({result.scored_tokens});
      RmsNormForward(last, final_norm_.compute, config_.rms_norm_eps, normed, rstd);
      result.loss_sum = ComputeTokenLoss(loss_, normed,
                                         {.projection = output_projection(),
                                          .labels = tokens.labels,
                                          .correct = want_accuracy ? &correct : nullptr},
                                         arena_);
    }
  } catch (const std::exception& e) {
    return Internal(std::string("evaluation pass: ") + e.what());
  }
  auto next = correct.begin();
  for (int64_t count : want_accuracy ? tokens.scored_per_row : std::vector<int64_t>()) {
    const auto right = std::count(next, next + count, true);
    next += count;
    result.row_accuracy.push_back(
        count > 0 ? static_cast<double>(right) / static_cast<double>(count) : 0.0);
  }
  return result;
}

Result<Tensor> CausalLm::Logits(const MicroBatch& batch) {
  const torch::NoGradGuard no_gradient;
  ASSIGN_OR_RETURN(const TokenBatch tokens,
                   MakeTokenBatch(batch, config_.vocab_size, /*every_token=*/true));
  const PassContext pass = MakePass(tokens);
  const Tensor x = ForwardLayers(pass, nullptr);
  Tensor normed = pass.Activation(config_.hidden_size), rstd = arena_.Take({tokens.tokens()});
  RmsNormForward(x, final_norm_.compute, config_.rms_norm_eps, normed, rstd);
  Tensor logits = arena_.Take({tokens.tokens(), config_.vocab_size});
  Gemm(logits, Plain(normed), Transposed(output_projection().compute), arena_);
  Tensor result = torch::zeros({batch.rows * batch.cols, config_.vocab_size});
  ScatterRows(logits, tokens.places, result);
  return result.view({batch.rows, batch.cols, config_.vocab_size});
}

}  // namespace everstep
