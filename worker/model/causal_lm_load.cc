// How a CausalLm comes into being: its weights from files.

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "common/log.h"
#include "worker/model/causal_lm.h"
#include "worker/model/mapped_tensor.h"

namespace everstep {
namespace {

using torch::Tensor;

// Embeddings grow to a multiple of this, as LLaMA-Factory lets them.
constexpr int64_t kVocabularyUnit = 64;

// Weights are multiplied with in place where they lie well in the mapped file.
bool IsAligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64 == 0;
}

}  // namespace

CausalLm::CausalLm(ModelConfig config, const TrainConfig& train)
    : config_(std::move(config)),
      finetuning_(train.finetuning.type),
      arguments_(train.finetuning),
      model_arguments_(train.model),
      seed_(static_cast<uint64_t>(train.training.seed)),
      neftune_alpha_(train.training.neftune_noise_alpha.value_or(0)),
      checkpointing_(train.training.gradient_checkpointing),
      loss_(TokenLoss::FromConfig(train)),
      compute_type_(train.training.precision == Precision::kBFloat16 ? torch::kBFloat16
                                                                     : torch::kFloat32) {
  for (int64_t i = 0; i < config_.layers; ++i) {
    layers_.push_back(std::make_unique<DecoderLayer>(config_, i));
  }
}

Result<std::unique_ptr<CausalLm>> CausalLm::Load(const std::string& directory,
                                                 const TrainConfig& config, int64_t vocab_size,
                                                 int64_t new_tokens) {
  const torch::NoGradGuard no_gradient;
  ASSIGN_OR_RETURN(ModelConfig model_config, LoadModelConfig(directory));
  const std::string& scaling = config.model.rope_scaling;
  if (!scaling.empty() && !ScaleRope(model_config, scaling, config.data.cutoff_len)) {
    LogWarning("rope_scaling is not needed: cutoff_len is within the model's own length");
  }
  std::unique_ptr<CausalLm> model(new CausalLm(std::move(model_config), config));
  try {
    RETURN_IF_ERROR(model->LoadBase(directory));
    RETURN_IF_ERROR(model->CheckVocabulary(directory, vocab_size, new_tokens));
    RETURN_IF_ERROR(model->ChooseTrainable());
    model->AlignFrozenWeights();
    model->ChooseFrozenLayers();
    model->CollectTrainable();
    model->RefreshAll();
  } catch (const std::exception& e) {
    return Internal(directory + ": cannot be loaded: " + e.what());
  }
  return model;
}

std::vector<CausalLm::NamedWeight> CausalLm::BaseWeights() {
  const int64_t hidden = config_.hidden_size;
  const int64_t q = config_.heads * config_.head_dim, kv = config_.kv_heads * config_.head_dim;
  const int64_t ffn = config_.intermediate_size;
  // Output and input size of each projection, in DecoderLayer's order.
  const std::array<std::pair<int64_t, int64_t>, DecoderLayer::kProjections> shapes{{{q, hidden},
                                                                                    {kv, hidden},
                                                                                    {kv, hidden},
                                                                                    {hidden, q},
                                                                                    {ffn, hidden},
                                                                                    {ffn, hidden},
                                                                                    {hidden, ffn}}};
  std::vector<NamedWeight> weights;
  const auto add = [&](std::string name, std::vector<int64_t> shape, Weight& weight) {
    weights.push_back({std::move(name), std::move(shape), &weight});
  };
  add("model.embed_tokens.weight", {config_.vocab_size, hidden}, embedding_);
  for (int64_t i = 0; i < config_.layers; ++i) {
    DecoderLayer& layer = *layers_[static_cast<size_t>(i)];
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    for (int which = 0; which < DecoderLayer::kProjections; ++which) {
      const auto [out, in] = shapes[static_cast<size_t>(which)];
      const std::string name = prefix + DecoderLayer::kProjectionNames[static_cast<size_t>(which)];
      Projection& projection = layer.projection(which);
      add(name + ".weight", {out, in}, projection.weight);
      const bool has_bias = which <= DecoderLayer::kV   ? config_.qkv_bias
                            : which == DecoderLayer::kO ? config_.output_bias
                                                        : config_.mlp_bias;
      if (has_bias) add(name + ".bias", {out}, projection.bias);
    }
    if (config_.qk_norm) {
      add(prefix + "self_attn.q_norm.weight", {config_.head_dim}, layer.q_norm());
      add(prefix + "self_attn.k_norm.weight", {config_.head_dim}, layer.k_norm());
    }
    add(prefix + "input_layernorm.weight", {hidden}, layer.input_norm());
    add(prefix + "post_attention_layernorm.weight", {hidden}, layer.post_norm());
  }
  add("model.norm.weight", {hidden}, final_norm_);
  if (!config_.tie_word_embeddings) add("lm_head.weight", {config_.vocab_size, hidden}, lm_head_);
  return weights;
}

int64_t CausalLm::ParametersBesidesEmbedding() const {
  std::set<const Weight*> counted{&embedding_};
  int64_t total = 0;
  const auto count = [&](const Weight* weight) {
    if (counted.insert(weight).second) total += weight->value.numel();
  };
  for (const NamedWeight& named : const_cast<CausalLm*>(this)->BaseWeights()) count(named.weight);
  for (const auto& [name, weight] : trained_) count(weight);
  if (finetuning_ != FinetuningType::kLora) return total;
  // PEFT keeps the original beside a module that is trained as a whole.
  for (const NamedWeight& named : const_cast<CausalLm*>(this)->BaseWeights()) {
    if (named.weight->trainable && named.weight != &embedding_)
      total += named.weight->value.numel();
  }
  return total;
}

Status CausalLm::LoadBase(const std::string& directory) {
  ASSIGN_OR_RETURN(SafetensorsSet files, SafetensorsSet::Open(directory));
  files_ = std::make_unique<SafetensorsSet>(std::move(files));
  std::set<std::string> expected;
  for (const NamedWeight& named : BaseWeights()) {
    RETURN_IF_ERROR(LoadWeight(named, directory));
    expected.insert(named.name);
  }
  for (const std::string& name : files_->Names()) {
    // Old exports carry tables that are computed, and the tied projection a second time.
    const bool redundant = name.ends_with("rotary_emb.inv_freq") ||
                           (name == "lm_head.weight" && config_.tie_word_embeddings);
    if (!redundant && !expected.contains(name)) {
      return DataLoss(files_->PathOf(name) + ": tensor '" + name +
                      "' has no place in the model that config.json describes: the files do not "
                      "belong together");
    }
  }
  return {};
}

Status CausalLm::LoadWeight(const NamedWeight& named, const std::string& directory) {
  const TensorView* view = files_->Find(named.name);
  if (view == nullptr) {
    return DataLoss(directory + ": the weights lack tensor '" + named.name + "' " +
                    ShapeText(named.shape) +
                    " that config.json calls for: the files do not belong together");
  }
  const std::string where = files_->PathOf(named.name) + ": tensor '" + named.name + "': ";
  if (view->shape != named.shape) {
    return DataLoss(where + "has shape " + ShapeText(view->shape) + ", config.json asks for " +
                    ShapeText(named.shape));
  }
  named.weight->name = named.name;
  ASSIGN_OR_RETURN(named.weight->value, MappedTensor(*view, where));
  return {};
}

// Matrix products need alignment, for their speed and for the same bits in every process. Trained
// weights get theirs in the flat vector.
void CausalLm::AlignFrozenWeights() {
  for (const NamedWeight& named : BaseWeights()) {
    Tensor& value = named.weight->value;
    if (!named.weight->trainable && value.dim() == 2 && value.scalar_type() == compute_type_ &&
        !IsAligned(value)) {
      value = value.clone();
    }
  }
}

Status CausalLm::CheckVocabulary(const std::string& directory, int64_t vocab_size,
                                 int64_t new_tokens) {
  if (vocab_size <= config_.vocab_size) return {};
  if (model_arguments_.resize_vocab) {
    ResizeVocabulary(vocab_size);
    return {};
  }
  // A tokenizer may name ids that the model never had; they fail only where the data use them.
  if (new_tokens == 0) return {};
  return InvalidArgument(directory + ": the model knows " + std::to_string(config_.vocab_size) +
                         " tokens, the tokenizer with its " + std::to_string(new_tokens) +
                         " new ones " + std::to_string(vocab_size) +
                         ": set resize_vocab: true, or choose the model's own template");
}

// New rows: the mean of the old ones, plus noise of 1 / sqrt(hidden), as LLaMA-Factory makes them.
void CausalLm::ResizeVocabulary(int64_t vocab_size) {
  const int64_t size = (vocab_size + kVocabularyUnit - 1) / kVocabularyUnit * kVocabularyUnit;
  const int64_t old_size = config_.vocab_size;
  torch::manual_seed(seed_);
  const auto grow = [&](Weight& weight) {
    const Tensor old = weight.value.to(torch::kFloat32);
    Tensor grown = torch::empty({size, config_.hidden_size}, torch::kFloat32);
    grown.narrow(0, 0, old_size).copy_(old);
    Tensor added = grown.narrow(0, old_size, size - old_size);
    added.normal_(0, 1.0 / std::sqrt(static_cast<double>(config_.hidden_size)));
    added.add_(old.mean(0, /*keepdim=*/true));
    weight.value = grown.to(weight.value.scalar_type());
    weight.compute = Tensor();
  };
  grow(embedding_);
  if (lm_head_.defined()) grow(lm_head_);
  config_.vocab_size = size;
  config_.raw["vocab_size"] = size;
  if (finetuning_ == FinetuningType::kLora && arguments_.lora.additional_target.empty()) {
    arguments_.lora.additional_target = {"embed_tokens", "lm_head"};
    LogWarning("the vocabulary has grown: embed_tokens and lm_head are trained too");
  }
}

}  // namespace everstep
