// How a CausalLm comes into being: weights from files, what is trained of them, adapters.

#include <algorithm>
#include <cmath>
#include <regex>

#include "common/check.h"
#include "common/log.h"
#include "common/strings.h"
#include "worker/model/causal_lm.h"

namespace everstep {
namespace {

using torch::Tensor;

torch::ScalarType ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return torch::kFloat64;
    case DType::kFloat16:
      return torch::kFloat16;
    case DType::kBFloat16:
      return torch::kBFloat16;
    default:
      return torch::kFloat32;
  }
}

bool IsFloating(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

// The tensor in the mapped file, without a copy.
Tensor Mapped(const TensorView& view) {
  return torch::from_blob(const_cast<std::byte*>(view.data.data()), view.shape,
                          torch::TensorOptions().dtype(ScalarTypeOf(view.dtype)));
}

bool IsAligned(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data.data()) % 64 == 0;
}

// transformers' rule: norms and biases do not decay.
bool Decays(const std::string& name) {
  static const std::regex kNoDecay("bias|layernorm|rmsnorm|(^|\\.)norm($|\\.)|_norm($|\\.)");
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return !std::regex_search(lower, kNoDecay);
}

void MakeTrainable(Weight& weight) {
  weight.trainable = true;
  weight.value = weight.value.to(torch::kFloat32).clone();
}

TensorView ViewOf(const std::string& name, const Tensor& tensor) {
  return {name,
          tensor.scalar_type() == torch::kBFloat16 ? DType::kBFloat16 : DType::kFloat32,
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

}  // namespace

CausalLm::CausalLm(ModelConfig config, const TrainConfig& train)
    : config_(std::move(config)),
      finetuning_(train.finetuning.type),
      arguments_(train.finetuning),
      model_arguments_(train.model),
      precision_(train.training.precision),
      seed_(static_cast<uint64_t>(train.training.seed)),
      neftune_alpha_(train.training.neftune_noise_alpha.value_or(0)),
      checkpointing_(train.training.gradient_checkpointing),
      loss_(TokenLoss::FromConfig(train)),
      compute_type_(precision_ == Precision::kBFloat16 ? torch::kBFloat16 : torch::kFloat32) {
  for (int64_t i = 0; i < config_.layers; ++i) {
    layers_.push_back(std::make_unique<DecoderLayer>(config_, i));
  }
}

Result<std::unique_ptr<CausalLm>> CausalLm::Load(const std::string& directory,
                                                 const TrainConfig& config, int64_t vocab_size) {
  const torch::NoGradGuard no_gradient;
  ASSIGN_OR_RETURN(ModelConfig model_config, LoadModelConfig(directory));
  std::unique_ptr<CausalLm> model(new CausalLm(std::move(model_config), config));
  RETURN_IF_ERROR(model->LoadBase(directory));
  if (vocab_size > model->config_.vocab_size && config.model.resize_vocab) {
    RETURN_IF_ERROR(model->ResizeVocabulary(vocab_size));
  }
  RETURN_IF_ERROR(model->ChooseTrainable());
  model->ChooseFrozenLayers();
  for (const NamedWeight& named : model->BaseWeights()) {
    named.weight->Refresh(model->compute_type_);
  }
  model->CollectTrainable();
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
      const bool attention = which <= DecoderLayer::kV;
      const bool has_bias = attention                   ? config_.qkv_bias
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

Status CausalLm::LoadBase(const std::string& directory) {
  ASSIGN_OR_RETURN(SafetensorsSet files, SafetensorsSet::Open(directory));
  files_ = std::make_unique<SafetensorsSet>(std::move(files));
  for (const NamedWeight& named : BaseWeights()) {
    const TensorView* view = files_->Find(named.name);
    if (view == nullptr) {
      return DataLoss(directory + ": the weights lack tensor '" + named.name +
                      "' that config.json calls for: the files do not belong together");
    }
    const std::string where = files_->PathOf(named.name) + ": tensor '" + named.name + "': ";
    if (view->shape != named.shape) {
      return DataLoss(where + "has shape " + ShapeText(view->shape) + ", config.json asks for " +
                      ShapeText(named.shape));
    }
    if (!IsFloating(view->dtype)) {
      return DataLoss(where + "has dtype " + std::string(DTypeName(view->dtype)) +
                      ": quantized weights are not supported, use F32, F16 or BF16");
    }
    named.weight->name = named.name;
    const Tensor mapped = Mapped(*view);
    // The mapping is used as it is where it can be: ranks on one machine share its pages.
    named.weight->value = mapped.scalar_type() == compute_type_ && IsAligned(*view)
                              ? mapped
                              : mapped.to(compute_type_, /*non_blocking=*/false, /*copy=*/true);
  }
  return {};
}

Status CausalLm::ResizeVocabulary(int64_t vocab_size) {
  const int64_t size = (vocab_size + 63) / 64 * 64;
  const int64_t old_size = config_.vocab_size;
  torch::manual_seed(seed_);
  // New rows: the mean of the old ones, plus noise of 1 / sqrt(hidden).
  const auto grow = [&](Weight& weight) {
    const Tensor old = weight.value.to(torch::kFloat32);
    Tensor grown = torch::empty({size, config_.hidden_size}, torch::kFloat32);
    grown.narrow(0, 0, old_size).copy_(old);
    Tensor added = grown.narrow(0, old_size, size - old_size);
    added.normal_(0, 1.0 / std::sqrt(static_cast<double>(config_.hidden_size)));
    added.add_(old.mean(0, /*keepdim=*/true));
    weight.value = grown.to(compute_type_);
  };
  grow(embedding_);
  if (!config_.tie_word_embeddings) grow(lm_head_);
  config_.vocab_size = size;
  config_.raw["vocab_size"] = size;
  if (finetuning_ == FinetuningType::kLora && arguments_.lora.additional_target.empty()) {
    arguments_.lora.additional_target = {"embed_tokens", "lm_head"};
  }
  return {};
}

namespace {

// Number of the layer in "model.layers.<i>.", or -1.
int64_t LayerOf(const std::string& name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return -1;
  return std::stoll(name.substr(kPrefix.size()));
}

// LLaMA-Factory's rule: the last n layers (n < 0: the first -n), restricted to the named modules,
// and whatever the extra modules match.
bool ThawedByFreezeRule(const std::string& name, int64_t layers, const FreezeArguments& freeze) {
  for (const std::string& module : freeze.extra_modules) {
    if (name.find(module) != std::string::npos) return true;
  }
  const int64_t layer = LayerOf(name);
  if (layer < 0) return false;
  const int64_t n = freeze.trainable_layers;
  const bool chosen = n >= 0 ? layer >= layers - n : layer < -n;
  if (!chosen) return false;
  const std::string prefix = "." + std::to_string(layer) + ".";
  return std::ranges::any_of(freeze.trainable_modules, [&](const std::string& module) {
    return module == "all" || name.find(prefix + module) != std::string::npos;
  });
}

}  // namespace

Status CausalLm::ChooseTrainable() {
  if (finetuning_ == FinetuningType::kLora) return AddLora();
  for (const NamedWeight& named : BaseWeights()) {
    if (finetuning_ == FinetuningType::kFull ||
        ThawedByFreezeRule(named.name, config_.layers, arguments_.freeze)) {
      MakeTrainable(*named.weight);
      trained_.emplace_back(named.name, named.weight);
    }
  }
  if (trained_.empty()) {
    return InvalidArgument(
        "freeze_trainable_layers, freeze_trainable_modules and "
        "freeze_extra_modules leave nothing to train");
  }
  return {};
}

namespace {

// The bound of torch's kaiming_uniform_ with a = sqrt(5), computed as there.
double KaimingBound(int64_t fan_in) {
  const double gain = std::sqrt(2.0 / (1 + std::pow(std::sqrt(5.0), 2)));
  return std::sqrt(3.0) * (gain / std::sqrt(static_cast<double>(fan_in)));
}

// Draws as PEFT does when it builds the layer: both matrices as torch.nn.Linear makes them, then A
// again, then B zero.
void InitLora(LoraPath& lora, int64_t rank, int64_t out, int64_t in) {
  lora.a.value = torch::empty({rank, in}).uniform_(-KaimingBound(in), KaimingBound(in));
  lora.b.value = torch::empty({out, rank}).uniform_(-KaimingBound(rank), KaimingBound(rank));
  lora.a.value.uniform_(-KaimingBound(in), KaimingBound(in));
  lora.b.value.zero_();
}

Tensor DoraNorm(const Projection& projection, const LoraPath& lora) {
  return (projection.weight.value.to(torch::kFloat32) +
          lora.scaling * at::mm(lora.b.value, lora.a.value))
      .norm(2, /*dim=*/1);
}

std::string LastComponent(const std::string& name) { return name.substr(name.rfind('.') + 1); }

Status CopyFrom(const SafetensorsFile& file, const std::string& name, Tensor& target) {
  const TensorView* view = file.Find(name);
  const std::string where = file.path() + ": tensor '" + name + "': ";
  if (view == nullptr) return DataLoss(where + "is missing");
  if (view->shape != target.sizes().vec()) {
    return DataLoss(where + "has shape " + ShapeText(view->shape) + ", the model asks for " +
                    ShapeText(target.sizes().vec()));
  }
  target = Mapped(*view).to(torch::kFloat32, /*non_blocking=*/false, /*copy=*/true);
  return {};
}

}  // namespace

Status CausalLm::AddLora() {
  ASSIGN_OR_RETURN(adapter_, AdapterConfigOf(arguments_.lora));
  const std::vector<std::string>& paths = model_arguments_.adapter_name_or_path;
  const bool continues = !paths.empty() && !arguments_.lora.create_new_adapter;
  // All adapters but the one that is trained on are merged into the base weights, in order.
  for (size_t i = 0; i < paths.size(); ++i) {
    ASSIGN_OR_RETURN(const AdapterConfig config, LoadAdapterConfig(paths[i]));
    if (continues && i + 1 == paths.size()) {
      const double dropout = adapter_.dropout;
      adapter_ = config;
      adapter_.dropout = config.dropout > 0 ? config.dropout : dropout;
    } else {
      ASSIGN_OR_RETURN(const SafetensorsFile file,
                       SafetensorsFile::Open(paths[i] + "/adapter_model.safetensors"));
      RETURN_IF_ERROR(MergeAdapter(config, file));
    }
  }
  std::unique_ptr<SafetensorsFile> start;
  if (continues) {
    ASSIGN_OR_RETURN(SafetensorsFile file,
                     SafetensorsFile::Open(paths.back() + "/adapter_model.safetensors"));
    start = std::make_unique<SafetensorsFile>(std::move(file));
  }
  torch::manual_seed(seed_);
  return BuildLora(start.get());
}

Status CausalLm::MergeAdapter(const AdapterConfig& config, const SafetensorsFile& file) {
  if (config.use_dora || !config.modules_to_save.empty()) {
    return InvalidArgument(file.path() +
                           ": an adapter with DoRA or modules_to_save cannot be "
                           "merged: export it into the model first");
  }
  for (const NamedWeight& named : BaseWeights()) {
    if (!named.name.ends_with(".weight") || LayerOf(named.name) < 0) continue;
    const std::string module = named.name.substr(0, named.name.size() - 7);
    if (std::ranges::find(config.target_modules, LastComponent(module)) ==
        config.target_modules.end()) {
      continue;
    }
    Tensor a = torch::empty({config.rank, named.shape[1]});
    Tensor b = torch::empty({named.shape[0], config.rank});
    RETURN_IF_ERROR(CopyFrom(file, "base_model.model." + module + ".lora_A.weight", a));
    RETURN_IF_ERROR(CopyFrom(file, "base_model.model." + module + ".lora_B.weight", b));
    const auto type = named.weight->value.scalar_type();
    named.weight->value = named.weight->value + (at::mm(b, a) * config.scaling()).to(type);
  }
  return {};
}

Status CausalLm::BuildLora(const SafetensorsFile* start) {
  for (int64_t i = 0; i < config_.layers; ++i) {
    for (int which = 0; which < DecoderLayer::kProjections; ++which) {
      const std::string path = "model.layers." + std::to_string(i) + "." +
                               DecoderLayer::kProjectionNames[static_cast<size_t>(which)];
      if (std::ranges::find(adapter_.target_modules, LastComponent(path)) ==
          adapter_.target_modules.end()) {
        continue;
      }
      Projection& projection = layers_[static_cast<size_t>(i)]->projection(which);
      projection.lora = std::make_unique<LoraPath>();
      LoraPath& lora = *projection.lora;
      lora.scaling = adapter_.scaling();
      lora.dropout = adapter_.dropout;
      const std::string prefix = "base_model.model." + path + ".";
      InitLora(lora, adapter_.rank, projection.weight.value.size(0),
               projection.weight.value.size(1));
      if (adapter_.use_dora) lora.magnitude.value = DoraNorm(projection, lora);
      const auto add = [&](const std::string& name, Weight& weight) -> Status {
        if (start != nullptr) RETURN_IF_ERROR(CopyFrom(*start, prefix + name, weight.value));
        weight.trainable = true;
        weight.name = prefix + name;
        trained_.emplace_back(weight.name, &weight);
        return {};
      };
      RETURN_IF_ERROR(add("lora_A.weight", lora.a));
      RETURN_IF_ERROR(add("lora_B.weight", lora.b));
      if (adapter_.use_dora) RETURN_IF_ERROR(add("lora_magnitude_vector", lora.magnitude));
    }
  }
  for (const std::string& module : adapter_.modules_to_save) {
    if (module == "lm_head" && config_.tie_word_embeddings) continue;
    Weight& weight = module == "lm_head" ? lm_head_ : embedding_;
    MakeTrainable(weight);
    const std::string name = "base_model.model." + weight.name;
    if (start != nullptr) RETURN_IF_ERROR(CopyFrom(*start, name, weight.value));
    trained_.emplace_back(name, &weight);
  }
  return {};
}

void CausalLm::ChooseFrozenLayers() {
  first_trained_layer_ = 0;
  if (embedding_.trainable) return;
  size_t first = layers_.size();
  for (const auto& [name, weight] : trained_) {
    std::string plain = name;
    if (plain.starts_with("base_model.model.")) plain = plain.substr(17);
    const int64_t layer = LayerOf(plain);
    if (layer >= 0) first = std::min(first, static_cast<size_t>(layer));
  }
  first_trained_layer_ = first;
}

double CausalLm::LrScale(const std::string& name, int64_t dimensions) const {
  if (finetuning_ != FinetuningType::kLora || !arguments_.lora.loraplus_lr_ratio) return 1;
  const bool is_b = name.find("lora_B") != std::string::npos || dimensions == 1;
  return is_b ? *arguments_.lora.loraplus_lr_ratio : 1;
}

void CausalLm::CollectTrainable() {
  for (auto& [name, weight] : trained_) {
    trainable_.push_back({name, weight->value, Decays(name), LrScale(name, weight->value.dim())});
  }
}

std::vector<TensorView> CausalLm::FrozenToSave() const {
  std::vector<TensorView> views;
  if (finetuning_ == FinetuningType::kLora) return views;
  for (const NamedWeight& named : const_cast<CausalLm*>(this)->BaseWeights()) {
    if (!named.weight->trainable) views.push_back(ViewOf(named.name, named.weight->value));
  }
  return views;
}

std::string CausalLm::ConfigToSave(const std::string& base_model) const {
  if (finetuning_ == FinetuningType::kLora) return AdapterConfigJson(adapter_, base_model);
  OrderedJson json = config_.raw;
  json.erase("torch_dtype");
  json["dtype"] = finetuning_ == FinetuningType::kFreeze && precision_ == Precision::kBFloat16
                      ? "bfloat16"
                      : "float32";
  json["use_cache"] = false;
  return DumpJson(json, 2) + "\n";
}

}  // namespace everstep
