#include "worker/config/known_keys.h"

#include <algorithm>
#include <map>

namespace everstep {
namespace {

constexpr RenamedKey kRenamed[] = {
    {"evaluation_strategy", "eval_strategy"},
    {"per_gpu_train_batch_size", "per_device_train_batch_size"},
    {"per_gpu_eval_batch_size", "per_device_eval_batch_size"},
};

struct RefusedValue {
  std::string_view key;
  std::string_view value;
  std::string_view reason;
};

constexpr RefusedValue kRefusedValues[] = {
    {"stage", "rm", "reward model training (rm) is not done yet: stage is pt or sft"},
    {"stage", "ppo", "PPO is not done yet: stage is pt or sft"},
    {"stage", "dpo", "preference training (dpo) is not done yet: stage is pt or sft"},
    {"stage", "kto", "preference training (kto) is not done yet: stage is pt or sft"},
    {"finetuning_type", "oft", "OFT is not done yet: use lora, full or freeze"},
    {"mix_strategy", "interleave_once",
     "is not done (it fails in LLaMA-Factory too): use interleave_under or interleave_over"},
    {"save_strategy", "best",
     "saving the best checkpoint only is not done yet: use steps or epoch"},
    {"lr_scheduler_type", "reduce_lr_on_plateau",
     "a schedule that follows the evaluation loss is not done yet: use cosine or linear"},
    {"lr_scheduler_type", "greedy",
     "a schedule that follows the evaluation loss is not done yet: use cosine or linear"},
    {"lr_scheduler_type", "cosine_warmup_with_min_lr", "is not done yet: use cosine_with_min_lr"},
};

}  // namespace

const std::vector<KnownKey>& AllKnownKeys() {
  static const auto* keys = [] {
    auto* all = new std::vector<KnownKey>;
    for (const auto rows :
         {ModelKeys(), DataKeys(), FinetuningKeys(), MethodKeys(), TrainingKeys(), RuntimeKeys()}) {
      all->insert(all->end(), rows.begin(), rows.end());
    }
    return all;
  }();
  return *keys;
}

const KnownKey* FindKnownKey(std::string_view name) {
  static const auto* by_name = [] {
    auto* map = new std::map<std::string_view, const KnownKey*>;
    for (const KnownKey& key : AllKnownKeys()) map->emplace(key.name, &key);
    return map;
  }();
  const auto it = by_name->find(name);
  return it == by_name->end() ? nullptr : it->second;
}

const std::vector<std::string_view>& KnownKeyNames() {
  static const auto* names = [] {
    auto* list = new std::vector<std::string_view>;
    for (const KnownKey& key : AllKnownKeys()) list->push_back(key.name);
    return list;
  }();
  return *names;
}

std::span<const RenamedKey> RenamedKeys() { return kRenamed; }

std::string_view RefusedValueReason(std::string_view key, std::string_view value) {
  for (const RefusedValue& refused : kRefusedValues) {
    if (refused.key == key && refused.value == value) return refused.reason;
  }
  return "";
}

}  // namespace everstep
