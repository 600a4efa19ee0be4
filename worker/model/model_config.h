// config.json of a Llama-family model: Llama 2/3, SmolLM2, Mistral, Qwen2/2.5, Qwen3.
#ifndef EVERSTEP_WORKER_MODEL_MODEL_CONFIG_H_
#define EVERSTEP_WORKER_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace everstep {

enum class RopeScaling { kNone, kLinear, kLlama3 };

struct RopeConfig {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  // Llama 3 only.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;
};

struct ModelConfig {
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;     // Qwen2
  bool output_bias = false;  // attention_bias of Llama
  bool mlp_bias = false;
  bool qk_norm = false;  // Qwen3
  // A token sees this many tokens up to itself; 0 = all. Layers below `full_attention_layers`
  // see all (Qwen's max_window_layers).
  int64_t sliding_window = 0;
  int64_t full_attention_layers = 0;
  RopeConfig rope;
  OrderedJson raw;  // the file, for saving

  int64_t WindowOf(int64_t layer) const {
    return layer < full_attention_layers ? 0 : sliding_window;
  }
};

// Both spellings: transformers 4 (torch_dtype, rope_theta, rope_scaling) and 5 (dtype,
// rope_parameters). What the model code does not do is an error that names the key.
Result<ModelConfig> ParseModelConfig(const std::string& text, const std::string& source);
Result<ModelConfig> LoadModelConfig(const std::string& directory);

// Rotation frequencies of each pair of a head's dimensions [head_dim / 2] (Su et al., RoFormer;
// the Llama 3 scaling is that of Meta's reference code).
std::vector<double> RopeFrequencies(const RopeConfig& rope, int64_t head_dim);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_MODEL_CONFIG_H_
