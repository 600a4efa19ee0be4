// What is saved of a CausalLm beside its trained parameters.

#include "worker/model/causal_lm.h"
#include "worker/model/mapped_tensor.h"

namespace everstep {

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
  // transformers writes the type of the first parameter, which is the embedding.
  json["dtype"] = embedding_.value.scalar_type() == torch::kBFloat16 ? "bfloat16" : "float32";
  json["use_cache"] = false;
  return DumpJson(json, 2) + "\n";
}

}  // namespace everstep
