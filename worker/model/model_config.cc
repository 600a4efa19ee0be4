#include "worker/model/model_config.h"

#include <array>
#include <cmath>
#include <numbers>
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
    if (value <= 0) Complain(key, "is missing or not positive");
    return value;
  }
  void Complain(const std::string& key, const std::string& what) {
    if (complaint_.empty()) complaint_ = source_ + ": " + key + ": " + what;
  }
  const std::string& complaint() const { return complaint_; }

 private:
  const OrderedJson& object_;
  std::string source_;
  std::string complaint_;
};

RopeConfig ReadRope(const OrderedJson& json, Reader& top) {
  RopeConfig rope;
  rope.theta = top.Number("rope_theta", 10000);
  const char* key = top.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!top.Has(key) || !json[key].is_object()) return rope;
  Reader reader(json[key], key);
  rope.theta = reader.Number("rope_theta", rope.theta);
  const std::string type = reader.Text("rope_type", reader.Text("type", "default"));
  rope.factor = reader.Number("factor", 1);
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_freq_factor = reader.Number("low_freq_factor", 1);
    rope.high_freq_factor = reader.Number("high_freq_factor", 4);
    rope.original_max_position_embeddings =
        reader.Integer("original_max_position_embeddings", 8192);
  } else if (type != "default") {
    top.Complain(key, "rope_type '" + type + "' is not supported (default, linear, llama3 are)");
  }
  return rope;
}

void ReadFamily(ModelConfig& config, Reader& reader) {
  const int64_t window = reader.Integer("sliding_window", 0);
  if (config.model_type == "qwen2") {
    config.qkv_bias = true;
  } else {
    config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  }
  config.qk_norm = config.model_type == "qwen3";
  config.mlp_bias = config.model_type == "llama" && reader.Bool("mlp_bias", false);
  const bool qwen = config.model_type == "qwen2" || config.model_type == "qwen3";
  if (config.model_type == "mistral" || (qwen && reader.Bool("use_sliding_window", false))) {
    config.sliding_window = window;
  }
  if (qwen) config.full_attention_layers = reader.Integer("max_window_layers", config.layers);
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

std::vector<double> RopeFrequencies(const RopeConfig& rope, int64_t head_dim) {
  std::vector<double> frequencies;
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(head_dim);
    double frequency = 1.0 / std::pow(rope.theta, exponent);
    if (rope.scaling == RopeScaling::kLinear) {
      frequency /= rope.factor;
    } else if (rope.scaling == RopeScaling::kLlama3) {
      const double wavelength = 2 * std::numbers::pi / frequency;
      const double low = original / rope.low_freq_factor;
      const double high = original / rope.high_freq_factor;
      if (wavelength > low) {
        frequency /= rope.factor;
      } else if (wavelength >= high) {
        const double smooth = (original / wavelength - rope.low_freq_factor) /
                              (rope.high_freq_factor - rope.low_freq_factor);
        frequency = (1 - smooth) * frequency / rope.factor + smooth * frequency;
      }
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace everstep
