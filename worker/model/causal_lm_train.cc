// What of a CausalLm is trained: everything, chosen layers, or adapters.

#include <algorithm>
#include <cmath>
#include <regex>
#include <string_view>

#include "common/strings.h"
#include "worker/model/causal_lm.h"
#include "worker/model/mapped_tensor.h"

namespace everstep {
namespace {

using torch::Tensor;

constexpr std::string_view kAdapterPrefix = "base_model.model.";

// transformers' rule: norms and biases do not decay.
bool Decays(const std::string& name) {
  static const std::regex kNoDecay("bias|layernorm|rmsnorm|(^|\\.)norm($|\\.)|_norm($|\\.)");
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return !std::regex_search(lower, kNoDecay);
}

// Number of the layer in "model.layers.<i>.", or -1.
int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return -1;
  return std::stoll(std::string(name.substr(kPrefix.size())));
}

std::string LastComponent(const std::string& name) { return name.substr(name.rfind('.') + 1); }

// "model.norm" of "model.norm.weight".
std::string ModuleOf(const std::string& name) { return name.substr(0, name.rfind('.')); }

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

Status CopyFrom(const SafetensorsFile& file, const std::string& name, Tensor& target) {
  const TensorView* view = file.Find(name);
  const std::string where = file.path() + ": tensor '" + name + "': ";
  if (view == nullptr) return DataLoss(where + "is missing");
  if (view->shape != target.sizes().vec()) {
    return DataLoss(where + "has shape " + ShapeText(view->shape) + ", the model asks for " +
                    ShapeText(target.sizes().vec()));
  }
  ASSIGN_OR_RETURN(const Tensor mapped, MappedTensor(*view, where));
  target = mapped.to(torch::kFloat32, /*non_blocking=*/false, /*copy=*/true);
  return {};
}

Result<SafetensorsFile> OpenAdapter(const std::string& directory) {
  return SafetensorsFile::Open(directory + "/adapter_model.safetensors");
}

}  // namespace

Status CausalLm::ChooseTrainable() {
  if (finetuning_ == FinetuningType::kLora) return AddLora();
  if (finetuning_ == FinetuningType::kFreeze) RETURN_IF_ERROR(CheckFreezeModules());
  for (const NamedWeight& named : BaseWeights()) {
    if (finetuning_ == FinetuningType::kFull ||
        ThawedByFreezeRule(named.name, config_.layers, arguments_.freeze)) {
      named.weight->trainable = true;
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

Status CausalLm::CheckFreezeModules() {
  std::vector<std::string_view> hidden{"self_attn", "mlp", "input_layernorm",
                                       "post_attention_layernorm"};
  std::vector<std::string_view> others{"embed_tokens", "norm"};
  if (lm_head_.defined()) others.push_back("lm_head");
  const auto check = [](const std::vector<std::string>& modules, const char* key,
                        const std::vector<std::string_view>& known) -> Status {
    for (const std::string& module : modules) {
      if (module != "all" && std::ranges::find(known, module) == known.end()) {
        return InvalidArgument(std::string(key) + ": '" + module +
                               "' is not a module of this model; there are " +
                               Join({known.begin(), known.end()}, ", "));
      }
    }
    return {};
  };
  RETURN_IF_ERROR(check(arguments_.freeze.trainable_modules, "freeze_trainable_modules", hidden));
  return check(arguments_.freeze.extra_modules, "freeze_extra_modules", others);
}

Status CausalLm::AddLora() {
  ASSIGN_OR_RETURN(adapter_, AdapterConfigOf(arguments_.lora));
  const std::vector<std::string>& paths = model_arguments_.adapter_name_or_path;
  const bool continues = !paths.empty() && !arguments_.lora.create_new_adapter;
  // All adapters but the one that is trained on are merged into the base weights, in order.
  for (size_t i = 0; i < paths.size(); ++i) {
    ASSIGN_OR_RETURN(const AdapterConfig config, LoadAdapterConfig(paths[i]));
    if (continues && i + 1 == paths.size()) {
      adapter_ = config;
    } else {
      ASSIGN_OR_RETURN(const SafetensorsFile file, OpenAdapter(paths[i]));
      RETURN_IF_ERROR(MergeAdapter(config, file));
    }
  }
  torch::manual_seed(seed_);
  if (!continues) return BuildLora(nullptr);
  ASSIGN_OR_RETURN(const SafetensorsFile file, OpenAdapter(paths.back()));
  return BuildLora(&file);
}

Status CausalLm::MergeAdapter(const AdapterConfig& config, const SafetensorsFile& file) {
  if (config.use_dora || !config.modules_to_save.empty()) {
    return InvalidArgument(file.path() +
                           ": an adapter with DoRA or modules_to_save cannot be "
                           "merged: export it into the model first");
  }
  for (const NamedWeight& named : BaseWeights()) {
    const std::string module = ModuleOf(named.name);
    if (!named.name.ends_with(".weight") || LayerOf(named.name) < 0 ||
        std::ranges::find(config.target_modules, LastComponent(module)) ==
            config.target_modules.end()) {
      continue;
    }
    const std::string prefix = std::string(kAdapterPrefix) + module;
    Tensor a = torch::empty({config.rank, named.shape[1]});
    Tensor b = torch::empty({named.shape[0], config.rank});
    RETURN_IF_ERROR(CopyFrom(file, prefix + ".lora_A.weight", a));
    RETURN_IF_ERROR(CopyFrom(file, prefix + ".lora_B.weight", b));
    const auto type = named.weight->value.scalar_type();
    named.weight->value = named.weight->value + (at::mm(b, a) * config.scaling()).to(type);
  }
  return {};
}

Status CausalLm::BuildLora(const SafetensorsFile* start) {
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    for (int which = 0; which < DecoderLayer::kProjections; ++which) {
      const std::string name = DecoderLayer::kProjectionNames[static_cast<size_t>(which)];
      if (std::ranges::find(adapter_.target_modules, LastComponent(name)) !=
          adapter_.target_modules.end()) {
        RETURN_IF_ERROR(BuildLoraPath(layer, which, start));
      }
    }
  }
  return TrainWholeModules(start);
}

Status CausalLm::BuildLoraPath(int64_t layer, int which, const SafetensorsFile* start) {
  Projection& projection = layers_[static_cast<size_t>(layer)]->projection(which);
  projection.lora = std::make_unique<LoraPath>();
  LoraPath& lora = *projection.lora;
  lora.scaling = adapter_.scaling();
  lora.dropout = adapter_.dropout;
  InitLora(lora, adapter_.rank, projection.weight.value.size(0), projection.weight.value.size(1));
  const std::string prefix = std::string(kAdapterPrefix) + "model.layers." + std::to_string(layer) +
                             "." + DecoderLayer::kProjectionNames[static_cast<size_t>(which)] + ".";
  const auto add = [&](const std::string& name, Weight& weight) -> Status {
    if (start != nullptr) RETURN_IF_ERROR(CopyFrom(*start, prefix + name, weight.value));
    weight.trainable = true;
    weight.name = prefix + name;
    trained_.emplace_back(weight.name, &weight);
    return {};
  };
  RETURN_IF_ERROR(add("lora_A.weight", lora.a));
  RETURN_IF_ERROR(add("lora_B.weight", lora.b));
  if (!adapter_.use_dora) return {};
  // Magnitudes start as the norms, which makes the scaling one.
  lora.magnitude.value = torch::zeros({projection.weight.value.size(0)});
  projection.Refresh(compute_type_);
  lora.magnitude.value = lora.row_norm.clone();
  return add("lora_magnitude_vector", lora.magnitude);
}

// PEFT's modules_to_save: copies of whole modules, trained beside the adapter. A tied output
// projection becomes a weight of its own.
Status CausalLm::TrainWholeModules(const SafetensorsFile* start) {
  const auto wanted = [&](const std::string& name) {
    return std::ranges::find(adapter_.modules_to_save, LastComponent(ModuleOf(name))) !=
           adapter_.modules_to_save.end();
  };
  std::vector<NamedWeight> weights = BaseWeights();
  if (!lm_head_.defined() && (wanted("model.embed_tokens.weight") || wanted("lm_head.weight"))) {
    lm_head_.name = "lm_head.weight";
    lm_head_.value = embedding_.value;
    weights.push_back({lm_head_.name, embedding_.value.sizes().vec(), &lm_head_});
  }
  for (const NamedWeight& named : weights) {
    if (!wanted(named.name)) continue;
    const std::string name = std::string(kAdapterPrefix) + named.name;
    if (start != nullptr) RETURN_IF_ERROR(CopyFrom(*start, name, named.weight->value));
    named.weight->trainable = true;
    trained_.emplace_back(name, named.weight);
  }
  return {};
}

void CausalLm::ChooseFrozenLayers() {
  first_trained_layer_ = embedding_.trainable ? 0 : layers_.size();
  for (const auto& [name, weight] : trained_) {
    std::string_view plain = name;
    if (plain.starts_with(kAdapterPrefix)) plain.remove_prefix(kAdapterPrefix.size());
    const int64_t layer = LayerOf(plain);
    if (layer >= 0) first_trained_layer_ = std::min(first_trained_layer_, size_t(layer));
  }
}

// LoRA+ (Hayou et al., 2024): B and whatever is a vector learn faster.
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

}  // namespace everstep
