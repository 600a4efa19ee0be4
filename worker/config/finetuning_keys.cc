#include "worker/config/known_keys.h"

namespace everstep {
namespace {

constexpr KnownKey kKeys[] = {
    {"stage", Support::kSupported, "sft", "pt (plain text) or sft (instructions)"},
    {"finetuning_type", Support::kSupported, "lora", "lora, full or freeze"},
    {"lora_rank", Support::kSupported, "8", "inner size of the adapter"},
    {"lora_alpha", Support::kSupported, "null", "scale of the adapter; null is twice lora_rank"},
    {"lora_dropout", Support::kSupported, "0", "dropout before the adapter"},
    {"lora_target", Support::kSupported, "all", "names of the layers with an adapter"},
    {"additional_target", Support::kSupported, "null", "further modules that are trained whole"},
    {"create_new_adapter", Support::kSupported, "false",
     "merges the given adapters and starts a new one"},
    {"use_rslora", Support::kSupported, "false", "scale by the root of the rank"},
    {"use_dora", Support::kSupported, "false", "weight-decomposed adapter"},
    {"loraplus_lr_ratio", Support::kSupported, "null", "LoRA+: learning rate of B over that of A"},
    {"loraplus_lr_embedding", Support::kSupported, "1e-6",
     "LoRA+: learning rate of adapters on embeddings"},
    {"freeze_trainable_layers", Support::kSupported, "2",
     "freeze: train the last n layers; negative: the first n"},
    {"freeze_trainable_modules", Support::kSupported, "all",
     "freeze: names of the modules inside those layers"},
    {"freeze_extra_modules", Support::kSupported, "null",
     "freeze: further modules that are trained"},
    {"pure_bf16", Support::kRefused, "false",
     "training without an fp32 copy of the weights needs a GPU, which is not done yet: use bf16: "
     "true"},
    {"use_dft_loss", Support::kSupported, "false", "dynamic fine-tuning loss"},
    {"plot_loss", Support::kSupported, "false", "draws training_loss"},
    {"compute_accuracy", Support::kSupported, "false", "token accuracy at evaluation"},
    {"disable_shuffling", Support::kSupported, "false", "examples in the file's order"},
    {"include_effective_tokens_per_second", Support::kNoEffect, "false",
     "tokens per second are always reported"},
    {"freeze_vision_tower", Support::kNoEffect, "true", "models read text alone"},
    {"freeze_multi_modal_projector", Support::kNoEffect, "true", "models read text alone"},
    {"freeze_language_model", Support::kRefused, "false",
     "would leave nothing to train: remove it"},
    {"early_stopping_steps", Support::kRefused, "null",
     "stopping early is not done yet: remove it"},
};

}  // namespace

std::span<const KnownKey> FinetuningKeys() { return kKeys; }

}  // namespace everstep
