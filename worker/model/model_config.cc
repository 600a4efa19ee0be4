#include "worker/model/model_config.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/files.h"
#include "common/strings.h"

namespace everstep {
namespace {

constexpr std::array<std::string_view, 4> kModelTypes{"llama", "mistral", "qwen2", "qwen3"};

// Reads keys of one object and remembers the first complaint.
class Reader {
 public:
  Reader(const OrderedJson& object, std::string source)
      : object_(object), source_(std::move(source)) {}

  bool Has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  int64_t Integer(const char* key, int64_t fallback) {
    if (!Has(key)) return fallback;
    if (!object_[key].is_number_integer()) return Complain(key, "must be a whole number"), fallback;
    return object_[key].get<int64_t>();
  }
  double Number(const char* key, double fallback) {
    if (!Has(key)) return fallback;
    if (!object_[key].is_number()) return Complain(key, "must be a number"), fallback;
    return object_[key].get<double>();
  }
  bool Bool(const char* key, bool fallback) {
    if (!Has(key)) return fallback;
    if (!object_[key].is_boolean()) return Complain(key, "must be true or false"), fallback;
    return object_[key].get<bool>();
  }
  std::string Text(const char* key, const std::string& fallback) {
    return Has(key) && object_[key].is_string() ? object_[key].get<std::string>() : fallback;
  }
  int64_t Positive(const char* key) {
    const int64_t value = Integer(key, 0);
    if (value <= 0)
      Complain(key, "is missing or not positive: take the config.json that belongs to the weights");
    return value;
  }
  void Complain(const std::string& key, const std::string& what) {
    if (complaint_.empty()) complaint_ = source_ + ": " + key + ": " + what;
  }
  void Fail(const std::string& complaint) {
    if (complaint_.empty()) complaint_ = complaint;
  }
  const std::string& source() const { return source_; }
  const std::string& complaint() const { return complaint_; }

 private:
  const OrderedJson& object_;
  std::string source_;
  std::string complaint_;
};

void ReadYarn(RopeConfig& rope, Reader& reader) {
  rope.beta_fast = reader.Number("beta_fast", 32);
  rope.beta_slow = reader.Number("beta_slow", 1);
  rope.attention_factor = reader.Number("attention_factor", 0);
  rope.mscale = reader.Number("mscale", 0);
  rope.mscale_all_dim = reader.Number("mscale_all_dim", 0);
  rope.truncate = reader.Bool("truncate", true);
  reader.Positive("original_max_position_embeddings");
}

RopeConfig ReadRope(const OrderedJson& json, Reader& top) {
  RopeConfig rope;
  rope.theta = top.Number("rope_theta", 10000);
  const char* key = top.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!top.Has(key) || !json[key].is_object()) return rope;
  Reader reader(json[key], top.source() + ": " + key);
  rope.theta = reader.Number("rope_theta", rope.theta);
  const std::string type = reader.Text("rope_type", reader.Text("type", "default"));
  rope.factor = reader.Number("factor", 1);
  rope.original_max_position_embeddings = reader.Integer("original_max_position_embeddings", 0);
  if (const double part = reader.Number("partial_rotary_factor", 1); part != 1) {
    reader.Complain("partial_rotary_factor", "is not supported (1 is)");
  }
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "dynamic") {
    rope.scaling = RopeScaling::kDynamic;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_freq_factor = reader.Number("low_freq_factor", 1);
    rope.high_freq_factor = reader.Number("high_freq_factor", 4);
    reader.Positive("original_max_position_embeddings");
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    ReadYarn(rope, reader);
  } else if (type != "default") {
    reader.Complain("rope_type", "'" + type +
                                     "' is not supported (default, linear, dynamic, llama3 and "
                                     "yarn are)");
  }
  if (!reader.complaint().empty()) top.Fail(reader.complaint());
  return rope;
}

// Which layers have a sliding window: those that layer_types names, else (Qwen) those from
// max_window_layers on, else (Mistral) all.
void ReadWindows(ModelConfig& config, Reader& reader) {
  config.windows.assign(static_cast<size_t>(std::max<int64_t>(0, config.layers)), 0);
  const bool qwen = config.model_type == "qwen2" || config.model_type == "qwen3";
  const bool used =
      config.model_type == "mistral" || (qwen && reader.Bool("use_sliding_window", false));
  const int64_t window = reader.Integer("sliding_window", 0);
  if (!used || window <= 0) return;
  const OrderedJson* types = reader.Has("layer_types") ? &config.raw["layer_types"] : nullptr;
  if (types != nullptr && (!types->is_array() || types->size() != config.windows.size())) {
    return reader.Complain("layer_types", "must be a list with one entry per layer");
  }
  const int64_t first = qwen ? reader.Integer("max_window_layers", config.layers) : 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const bool slides = types != nullptr
                            ? (*types)[static_cast<size_t>(layer)] == "sliding_attention"
                            : layer >= first;
    if (slides) config.windows[static_cast<size_t>(layer)] = window;
  }
}

void ReadFamily(ModelConfig& config, Reader& reader) {
  if (config.model_type == "qwen2") {
    config.qkv_bias = true;
  } else if (config.model_type != "mistral") {
    config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  }
  config.qk_norm = config.model_type == "qwen3";
  config.mlp_bias = config.model_type == "llama" && reader.Bool("mlp_bias", false);
  ReadWindows(config, reader);
  if (reader.Has("quantization_config")) {
    reader.Complain("quantization_config",
                    "quantized models are not supported: use F32, F16 or "
                    "BF16 weights");
  }
  if (reader.Number("attention_dropout", 0) != 0) {
    reader.Complain("attention_dropout", "is not supported (0 is)");
  }
}

}  // namespace

Result<ModelConfig> ParseModelConfig(const std::string& text, const std::string& source) {
  ModelConfig config;
  ASSIGN_OR_RETURN(config.raw, ParseOrderedJson(text, source));
  if (!config.raw.is_object()) return InvalidArgument(source + ": must be a JSON object");
  Reader reader(config.raw, source);
  config.model_type = reader.Text("model_type", "");
  if (std::ranges::find(kModelTypes, config.model_type) == kModelTypes.end()) {
    return InvalidArgument(source + ": model_type: '" + config.model_type +
                           "' is not supported: use a llama, mistral, qwen2 or qwen3 model");
  }
  config.vocab_size = reader.Positive("vocab_size");
  config.hidden_size = reader.Positive("hidden_size");
  config.intermediate_size = reader.Positive("intermediate_size");
  config.layers = reader.Positive("num_hidden_layers");
  config.heads = reader.Positive("num_attention_heads");
  config.kv_heads = reader.Integer("num_key_value_heads", config.heads);
  if (config.kv_heads <= 0 || (config.heads > 0 && config.heads % config.kv_heads != 0)) {
    reader.Complain("num_key_value_heads", "must divide num_attention_heads");
  }
  config.head_dim =
      reader.Integer("head_dim", config.heads > 0 ? config.hidden_size / config.heads : 0);
  if (config.head_dim <= 0 || config.head_dim % 2 != 0) {
    reader.Complain("head_dim", "must be positive and even");
  }
  config.max_position_embeddings = reader.Integer("max_position_embeddings", 0);
  config.rms_norm_eps = reader.Number("rms_norm_eps", 1e-6);
  config.tie_word_embeddings = reader.Bool("tie_word_embeddings", false);
  if (const std::string act = reader.Text("hidden_act", "silu"); act != "silu") {
    reader.Complain("hidden_act", "'" + act + "' is not supported (silu is)");
  }
  ReadFamily(config, reader);
  config.rope = ReadRope(config.raw, reader);
  if (!reader.complaint().empty()) return InvalidArgument(reader.complaint());
  return config;
}

Result<ModelConfig> LoadModelConfig(const std::string& directory) {
  const std::string path = directory + "/config.json";
  auto text = ReadFile(path);
  if (!text) {
    return InvalidArgument(path +
                           ": cannot be read: model_name_or_path must be a Hugging Face "
                           "model directory");
  }
  return ParseModelConfig(*text, path);
}

bool ScaleRope(ModelConfig& config, const std::string& type, int64_t cutoff_len) {
  const bool has_original = config.rope.original_max_position_embeddings > 0;
  const int64_t length =
      has_original ? config.rope.original_max_position_embeddings : config.max_position_embeddings;
  if (length <= 0 || cutoff_len <= length) return false;
  const int64_t factor = (cutoff_len + length - 1) / length;
  OrderedJson scaling = {{"rope_type", type}, {"factor", static_cast<double>(factor)}};
  if (type != "linear") scaling["original_max_position_embeddings"] = length;
  if (type == "llama3") {
    scaling["low_freq_factor"] = 1.0;
    scaling["high_freq_factor"] = 4.0;
  }
  scaling["rope_theta"] = config.rope.theta;
  config.raw["max_position_embeddings"] = length * factor;
  config.raw[config.raw.contains("rope_parameters") ? "rope_parameters" : "rope_scaling"] = scaling;
  config.max_position_embeddings = length * factor;
  Reader reader(config.raw, "rope_scaling");
  config.rope = ReadRope(config.raw, reader);
  return true;
}

}  // namespace everstep
