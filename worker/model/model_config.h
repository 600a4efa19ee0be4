// config.json of a Llama-family model: Llama 2/3, SmolLM2, Mistral, Qwen2/2.5, Qwen3.
#ifndef EVERSTEP_WORKER_MODEL_MODEL_CONFIG_H_
#define EVERSTEP_WORKER_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace everstep {

enum class RopeScaling { kNone, kLinear, kDynamic, kLlama3, kYarn };

struct RopeConfig {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  int64_t original_max_position_embeddings = 0;  // Llama 3 and YaRN
  // Llama 3 only.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  // YaRN only. 0 = not given.
  double beta_fast = 32;
  double beta_slow = 1;
  double attention_factor = 0;
  double mscale = 0;
  double mscale_all_dim = 0;
  bool truncate = true;
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
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;     // Qwen2
  bool output_bias = false;  // attention_bias of Llama
  bool mlp_bias = false;
  bool qk_norm = false;  // Qwen3
  // Per layer: a token sees this many tokens up to itself; 0 = all.
  std::vector<int64_t> windows;
  RopeConfig rope;
  OrderedJson raw;  // the file, for saving

  int64_t WindowOf(int64_t layer) const { return windows[static_cast<size_t>(layer)]; }
};

// Both spellings: transformers 4 (torch_dtype, rope_theta, rope_scaling) and 5 (dtype,
// rope_parameters). What the model code does not do is an error that names the key.
Result<ModelConfig> ParseModelConfig(const std::string& text, const std::string& source);
Result<ModelConfig> LoadModelConfig(const std::string& directory);

// Applies the training file's rope_scaling as LLaMA-Factory does: when `cutoff_len` exceeds the
// model's length, that is multiplied with the smallest whole factor that suffices. Also changes
// `raw`. Returns false, and changes nothing, where the model's own length is enough.
bool ScaleRope(ModelConfig& config, const std::string& type, int64_t cutoff_len);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_MODEL_CONFIG_H_
