#include "worker/model/adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "common/files.h"
#include "common/json.h"
#include "common/strings.h"

namespace everstep {
namespace {

constexpr std::array<std::string_view, 7> kLinearModules{
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
constexpr std::array<std::string_view, 7> kOtherModules{
    "embed_tokens", "lm_head", "norm", "input_layernorm", "post_attention_layernorm",
    "q_norm",       "k_norm"};

Status CheckModules(const std::vector<std::string>& modules, const std::string& where,
                    std::span<const std::string_view> known) {
  for (const std::string& module : modules) {
    if (std::ranges::find(known, module) == known.end()) {
      return InvalidArgument(where + ": '" + module + "' is not a module of this model" +
                             DidYouMean(module, known) + "; there are " +
                             Join({known.begin(), known.end()}, ", "));
    }
  }
  return {};
}

std::vector<std::string> TextList(const Json& json, const char* key) {
  std::vector<std::string> list;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return list;
  for (const Json& item : *found) {
    if (item.is_string()) list.push_back(item.get<std::string>());
  }
  return list;
}

}  // namespace

double AdapterConfig::scaling() const {
  const auto r = static_cast<double>(rank);
  return alpha / (use_rslora ? std::sqrt(r) : r);
}

Result<AdapterConfig> AdapterConfigOf(const LoraArguments& arguments) {
  AdapterConfig config;
  config.rank = arguments.rank;
  config.alpha = static_cast<double>(arguments.alpha.value_or(2 * arguments.rank));
  config.dropout = arguments.dropout;
  config.use_rslora = arguments.use_rslora;
  config.use_dora = arguments.use_dora;
  config.target_modules = arguments.target;
  if (arguments.target == std::vector<std::string>{"all"}) {
    config.target_modules.assign(kLinearModules.begin(), kLinearModules.end());
  }
  config.modules_to_save = arguments.additional_target;
  RETURN_IF_ERROR(CheckModules(config.target_modules, "lora_target", kLinearModules));
  RETURN_IF_ERROR(CheckModules(config.modules_to_save, "additional_target", kOtherModules));
  return config;
}

Result<AdapterConfig> LoadAdapterConfig(const std::string& directory) {
  const std::string path = directory + "/adapter_config.json";
  auto text = ReadFile(path);
  if (!text) {
    return InvalidArgument(path +
                           ": cannot be read: adapter_name_or_path must be a directory "
                           "with a PEFT adapter");
  }
  ASSIGN_OR_RETURN(const Json json, ParseJson(*text, path));
  if (const auto type = JsonValue<std::string>(json, "peft_type", ""); type != "LORA") {
    return InvalidArgument(path + ": peft_type: '" + type + "' is not supported (LORA is)");
  }
  for (const char* key : {"rank_pattern", "alpha_pattern", "layers_to_transform"}) {
    if (json.contains(key) && !json[key].is_null() && !json[key].empty()) {
      return InvalidArgument(path + ": " + key + ": is not supported: use one rank for all layers");
    }
  }
  if (JsonValue<std::string>(json, "bias", "none") != "none") {
    return InvalidArgument(path + ": bias: only 'none' is supported");
  }
  AdapterConfig config;
  config.rank = JsonValue<int64_t>(json, "r", 0);
  config.alpha = JsonValue<double>(json, "lora_alpha", 0);
  config.dropout = JsonValue<double>(json, "lora_dropout", 0);
  config.use_rslora = JsonValue<bool>(json, "use_rslora", false);
  config.use_dora = JsonValue<bool>(json, "use_dora", false);
  config.target_modules = TextList(json, "target_modules");
  config.modules_to_save = TextList(json, "modules_to_save");
  if (config.rank < 1) return InvalidArgument(path + ": r: must be at least 1");
  RETURN_IF_ERROR(CheckModules(config.target_modules, path + ": target_modules", kLinearModules));
  RETURN_IF_ERROR(CheckModules(config.modules_to_save, path + ": modules_to_save", kOtherModules));
  return config;
}

std::string AdapterConfigJson(const AdapterConfig& config, const std::string& base_model) {
  OrderedJson json;
  for (const char* key :
       {"alora_invocation_tokens", "arrow_config", "auto_mapping", "corda_config", "eva_config",
        "exclude_modules", "layer_replication", "layers_pattern", "layers_to_transform",
        "megatron_config", "revision", "target_parameters", "trainable_token_indices"}) {
    json[key] = nullptr;
  }
  for (const char* key : {"alpha_pattern", "loftq_config", "rank_pattern"}) {
    json[key] = OrderedJson::object();
  }
  for (const char* key : {"ensure_weight_tying", "fan_in_fan_out", "lora_bias", "use_qalora"}) {
    json[key] = false;
  }
  json["base_model_name_or_path"] = base_model;
  json["bias"] = "none";
  json["inference_mode"] = true;
  json["init_lora_weights"] = true;
  if (config.alpha == std::floor(config.alpha)) {
    json["lora_alpha"] = static_cast<int64_t>(config.alpha);
  } else {
    json["lora_alpha"] = config.alpha;
  }
  json["lora_dropout"] = config.dropout;
  json["megatron_core"] = "megatron.core";
  if (config.modules_to_save.empty()) {
    json["modules_to_save"] = nullptr;
  } else {
    json["modules_to_save"] = config.modules_to_save;
  }
  json["peft_type"] = "LORA";
  json["peft_version"] = "0.18.1";
  json["qalora_group_size"] = 16;
  json["r"] = config.rank;
  json["target_modules"] = config.target_modules;
  json["task_type"] = "CAUSAL_LM";
  json["use_dora"] = config.use_dora;
  json["use_rslora"] = config.use_rslora;
  // PEFT writes its keys in alphabetical order.
  return DumpJson(Json(json), 2) + "\n";
}

}  // namespace everstep
