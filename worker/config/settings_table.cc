#include "common/strings.h"
#include "worker/config/key_reader.h"
#include "worker/config/train_config.h"

namespace everstep {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

std::string YesNo(bool value) { return value ? "true" : "false"; }

std::string StrategyText(IntervalStrategy strategy, double steps) {
  switch (strategy) {
    case IntervalStrategy::kNo:
      return "no";
    case IntervalStrategy::kEpoch:
      return "every epoch";
    case IntervalStrategy::kSteps:
      return steps < 1 ? "every " + FormatNumber(steps) + " of all steps"
                       : "every " + FormatNumber(steps) + " steps";
  }
  return "";
}

std::string TypeName(FinetuningType type) {
  switch (type) {
    case FinetuningType::kFull:
      return "full";
    case FinetuningType::kLora:
      return "lora";
    case FinetuningType::kFreeze:
      return "freeze";
  }
  return "";
}

void AddMethod(const FinetuningArguments& finetuning, Rows* rows) {
  rows->emplace_back("stage", finetuning.stage == Stage::kPt ? "pt" : "sft");
  rows->emplace_back("finetuning_type", TypeName(finetuning.type));
  const LoraArguments& lora = finetuning.lora;
  if (finetuning.type == FinetuningType::kLora) {
    rows->emplace_back("lora_rank", std::to_string(lora.rank));
    rows->emplace_back("lora_alpha", std::to_string(lora.alpha.value_or(2 * lora.rank)));
    rows->emplace_back("lora_dropout", FormatNumber(lora.dropout));
    rows->emplace_back("lora_target", Join(lora.target, ", "));
    if (!lora.additional_target.empty()) {
      rows->emplace_back("additional_target", Join(lora.additional_target, ", "));
    }
    if (lora.use_rslora) rows->emplace_back("use_rslora", "true");
    if (lora.use_dora) rows->emplace_back("use_dora", "true");
    if (lora.loraplus_lr_ratio) {
      rows->emplace_back("loraplus_lr_ratio", FormatNumber(*lora.loraplus_lr_ratio));
    }
  } else if (finetuning.type == FinetuningType::kFreeze) {
    rows->emplace_back("freeze_trainable_layers",
                       std::to_string(finetuning.freeze.trainable_layers));
    rows->emplace_back("freeze_trainable_modules", Join(finetuning.freeze.trainable_modules, ", "));
  }
}

void AddData(const DataArguments& data, Rows* rows) {
  rows->emplace_back("dataset", Join(data.dataset, ", "));
  if (!data.eval_dataset.empty()) rows->emplace_back("eval_dataset", Join(data.eval_dataset, ", "));
  if (data.val_size > 0) rows->emplace_back("val_size", FormatNumber(data.val_size));
  rows->emplace_back("dataset_dir", data.dataset_dir);
  rows->emplace_back("template",
                     data.template_name.empty() ? "the tokenizer's own" : data.template_name);
  rows->emplace_back("cutoff_len", std::to_string(data.cutoff_len));
  if (data.max_samples) rows->emplace_back("max_samples", std::to_string(*data.max_samples));
  rows->emplace_back("packing", data.neat_packing ? "neat" : YesNo(data.packing));
}

void AddTraining(const TrainingArguments& training, Rows* rows) {
  rows->emplace_back("per_device_train_batch_size",
                     std::to_string(training.per_device_train_batch_size));
  rows->emplace_back("gradient_accumulation_steps",
                     std::to_string(training.gradient_accumulation_steps));
  if (training.max_steps > 0) {
    rows->emplace_back("max_steps", std::to_string(training.max_steps));
  } else {
    rows->emplace_back("num_train_epochs", FormatNumber(training.num_train_epochs));
  }
  rows->emplace_back("learning_rate", FormatNumber(training.learning_rate));
  rows->emplace_back("lr_scheduler_type", training.lr_scheduler_type);
  const bool by_steps = training.warmup_steps > 0;
  rows->emplace_back(by_steps ? "warmup_steps" : "warmup_ratio",
                     FormatNumber(by_steps ? training.warmup_steps : training.warmup_ratio));
  rows->emplace_back("weight_decay", FormatNumber(training.weight_decay));
  rows->emplace_back("max_grad_norm", FormatNumber(training.max_grad_norm));
  rows->emplace_back("precision", training.precision == Precision::kBFloat16 ? "bf16" : "fp32");
  rows->emplace_back("gradient_checkpointing", YesNo(training.gradient_checkpointing));
  rows->emplace_back("seed", std::to_string(training.seed));
  rows->emplace_back("evaluation", StrategyText(training.eval_strategy, training.eval_steps));
  rows->emplace_back("checkpoints", StrategyText(training.save_strategy, training.save_steps));
  if (training.save_total_limit) {
    rows->emplace_back("save_total_limit", std::to_string(*training.save_total_limit));
  }
  rows->emplace_back("output_dir", training.output_dir);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> SettingsTable(const TrainConfig& config) {
  Rows rows;
  rows.emplace_back("model_name_or_path", config.model.model_name_or_path);
  if (!config.model.adapter_name_or_path.empty()) {
    rows.emplace_back("adapter_name_or_path", Join(config.model.adapter_name_or_path, ", "));
  }
  AddMethod(config.finetuning, &rows);
  AddData(config.data, &rows);
  AddTraining(config.training, &rows);
  return rows;
}

}  // namespace everstep
