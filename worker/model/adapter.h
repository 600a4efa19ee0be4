// LoRA adapters in PEFT's format: adapter_config.json and adapter_model.safetensors.
#ifndef EVERSTEP_WORKER_MODEL_ADAPTER_H_
#define EVERSTEP_WORKER_MODEL_ADAPTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "worker/config/train_config.h"

namespace everstep {

struct AdapterConfig {
  int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;
  bool use_rslora = false;
  bool use_dora = false;
  std::vector<std::string> target_modules;   // last name components: "q_proj"
  std::vector<std::string> modules_to_save;  // "embed_tokens", "lm_head"

  // Factor on the side path: alpha / r, or alpha / sqrt(r) (Kalajdzievski, rsLoRA).
  double scaling() const;
};

// From the training file; target "all" means every linear layer of the decoder.
Result<AdapterConfig> AdapterConfigOf(const LoraArguments& arguments);
// From `directory`/adapter_config.json. What this program does not do (bias, patterns per layer,
// other PEFT types) is an error that names the key.
Result<AdapterConfig> LoadAdapterConfig(const std::string& directory);
// The content of adapter_config.json, with PEFT 0.18's fields.
std::string AdapterConfigJson(const AdapterConfig& config, const std::string& base_model);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_ADAPTER_H_
