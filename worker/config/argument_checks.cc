#include <algorithm>
#include <cmath>

#include "common/strings.h"
#include "worker/config/arguments.h"

namespace everstep {
namespace {

// Below 1 a share of all steps, above a number of them.
void CheckSteps(KeyReader* reader, std::string_view key, double steps) {
  if (steps > 1 && steps != std::floor(steps)) {
    reader->Fail(key, "must be a whole number when above 1, is " + FormatNumber(steps));
  }
}

void CheckRequired(KeyReader* reader, const TrainConfig& config) {
  if (config.model.model_name_or_path.empty() && !reader->Failed("model_name_or_path")) {
    reader->Fail("model_name_or_path", "is missing: set it to a model directory or a hub name");
  }
  if (config.data.dataset.empty() && !reader->Failed("dataset")) {
    reader->Fail("dataset", "is missing: name at least one data set of dataset_info.json");
  }
  if (!config.training.do_train && !reader->Failed("do_train")) {
    reader->Fail("do_train", "must be true, or nothing would be trained");
  }
  if (config.training.output_dir.empty()) reader->Fail("output_dir", "must not be empty");
}

void CheckStage(KeyReader* reader, const TrainConfig& config) {
  if (config.finetuning.stage != Stage::kSft) {
    const auto sft_only = [&](std::string_view key, bool on) {
      if (on) reader->Fail(key, "belongs to stage sft: remove it, or set stage: sft");
    };
    sft_only("neat_packing", config.data.neat_packing);
    sft_only("train_on_prompt", config.data.train_on_prompt);
    sft_only("mask_history", config.data.mask_history);
  }
  if (config.data.mask_history && config.data.train_on_prompt) {
    reader->Fail("mask_history", "cannot be used together with train_on_prompt: remove one");
  }
}

void CheckMethod(KeyReader* reader, const TrainConfig& config) {
  if (reader->Failed("finetuning_type")) return;
  const FinetuningArguments& finetuning = config.finetuning;
  const auto lora_only = [&](std::string_view key, bool on) {
    if (on) reader->Fail(key, "belongs to finetuning_type lora: remove it");
  };
  if (finetuning.type != FinetuningType::kLora) {
    lora_only("adapter_name_or_path", !config.model.adapter_name_or_path.empty());
    lora_only("loraplus_lr_ratio", finetuning.lora.loraplus_lr_ratio.has_value());
    lora_only("use_rslora", finetuning.lora.use_rslora);
    lora_only("use_dora", finetuning.lora.use_dora);
  } else if (finetuning.lora.target.empty()) {
    reader->Fail("lora_target", "must name at least one layer, or be all");
  }
  if (finetuning.type == FinetuningType::kFreeze && finetuning.freeze.trainable_layers == 0 &&
      finetuning.freeze.extra_modules.empty()) {
    reader->Fail("freeze_trainable_layers",
                 "is 0, so that nothing would be trained: set it to at "
                 "least 1");
  }
}

void CheckData(KeyReader* reader, const DataArguments& data) {
  if (data.dataset_dir == "ONLINE" || data.dataset_dir.starts_with("REMOTE:")) {
    reader->Fail("dataset_dir",
                 "data sets from the hub are not done yet: give a folder with "
                 "dataset_info.json");
  }
  if (!data.ignore_pad_token_for_loss) {
    reader->Fail("ignore_pad_token_for_loss",
                 "counting padding in the loss is not done yet: "
                 "remove it");
  }
  if (data.val_size > 0 && !data.eval_dataset.empty()) {
    reader->Fail("val_size", "cannot be used together with eval_dataset: remove one");
  }
  if (data.val_size >= 1 && data.val_size != std::floor(data.val_size)) {
    reader->Fail("val_size", "must be a whole number of examples, or a share below 1; is " +
                                 FormatNumber(data.val_size));
  } else if (data.val_size == 1) {
    reader->Fail("val_size", "is 1: give a share below 1, or at least 2 examples");
  }
  if (data.interleave_probs.empty() || reader->Failed("mix_strategy")) return;
  if (data.mix_strategy == MixStrategy::kConcat) {
    reader->Fail("interleave_probs",
                 "belongs to an interleaving mix_strategy: remove it, or set "
                 "mix_strategy: interleave_under");
  }
  const auto check_count = [&](std::string_view key, const std::vector<std::string>& names) {
    if (names.empty() || names.size() == data.interleave_probs.size()) return;
    reader->Fail("interleave_probs", "has " + std::to_string(data.interleave_probs.size()) +
                                         " entries and " + std::string(key) + " " +
                                         std::to_string(names.size()) + ": give one for each");
  };
  check_count("dataset", data.dataset);
  check_count("eval_dataset", data.eval_dataset);
  double sum = 0;
  for (const double share : data.interleave_probs) sum += share;
  constexpr double kSumTolerance = 1e-6;
  if (std::abs(sum - 1) > kSumTolerance) {
    reader->Fail("interleave_probs", "must add up to 1, add up to " + FormatNumber(sum));
  }
}

void CheckIntervals(KeyReader* reader, TrainingArguments* training) {
  if (training->logging_strategy == "steps") {
    CheckSteps(reader, "logging_steps", training->logging_steps);
    if (training->logging_steps == 0 && !reader->Failed("logging_steps")) {
      reader->Fail("logging_steps", "must be greater than 0, or set logging_strategy: no");
    }
  }
  if (training->save_strategy == IntervalStrategy::kSteps) {
    CheckSteps(reader, "save_steps", training->save_steps);
    if (training->save_steps == 0 && !reader->Failed("save_steps")) {
      reader->Fail("save_steps", "must be greater than 0, or set save_strategy: no");
    }
  }
  if (training->eval_strategy == IntervalStrategy::kSteps) {
    if (training->eval_steps == 0) training->eval_steps = training->logging_steps;
    CheckSteps(reader, "eval_steps", training->eval_steps);
  }
}

void CheckEvaluation(KeyReader* reader, TrainConfig* config) {
  TrainingArguments* training = &config->training;
  if (training->eval_strategy != IntervalStrategy::kNo) training->do_eval = true;
  const bool has_data = !config->data.eval_dataset.empty() || config->data.val_size > 0;
  if (!training->do_eval || has_data) return;
  if (reader->Failed("eval_dataset") || reader->Failed("val_size")) return;
  const bool by_strategy = training->eval_strategy != IntervalStrategy::kNo;
  reader->Fail(by_strategy ? "eval_strategy" : "do_eval",
               "there is nothing to evaluate on: set eval_dataset or val_size");
}

void CheckBestModel(KeyReader* reader, TrainingArguments* training) {
  if (training->load_best_model_at_end && training->metric_for_best_model.empty()) {
    training->metric_for_best_model = "loss";
  }
  if (!training->greater_is_better.has_value() && !training->metric_for_best_model.empty()) {
    training->greater_is_better = !training->metric_for_best_model.ends_with("loss");
  }
  if (!training->load_best_model_at_end || reader->Failed("eval_strategy") ||
      reader->Failed("save_strategy")) {
    return;
  }
  if (training->eval_strategy != training->save_strategy) {
    reader->Fail("load_best_model_at_end", "needs eval_strategy and save_strategy to be the same");
    return;
  }
  if (training->eval_strategy != IntervalStrategy::kSteps || training->eval_steps <= 0) return;
  const bool mixed = (training->eval_steps < 1) != (training->save_steps < 1);
  const double ratio = training->save_steps / training->eval_steps;
  constexpr double kRatioTolerance = 1e-6;  // for shares such as 0.3 / 0.1
  if (mixed || std::abs(ratio - std::round(ratio)) > kRatioTolerance) {
    reader->Fail("load_best_model_at_end",
                 "needs save_steps to be a multiple of eval_steps: they are " +
                     FormatNumber(training->save_steps) + " and " +
                     FormatNumber(training->eval_steps));
  }
}

struct SchedulerSettings {
  std::string_view type;
  std::vector<std::string_view> names;
};

void CheckScheduler(KeyReader* reader, const TrainingArguments& training) {
  static const std::vector<SchedulerSettings> kSettings = {
      {"cosine", {"num_cycles"}},
      {"cosine_with_restarts", {"num_cycles"}},
      {"polynomial", {"lr_end", "power"}},
      {"inverse_sqrt", {"timescale"}},
      {"cosine_with_min_lr", {"num_cycles", "min_lr", "min_lr_rate"}},
      {"warmup_stable_decay",
       {"num_stable_steps", "num_decay_steps", "warmup_type", "decay_type", "min_lr_ratio",
        "num_cycles"}}};
  if (reader->Failed("lr_scheduler_type") || reader->Failed("lr_scheduler_kwargs")) return;
  const std::string& type = training.lr_scheduler_type;
  std::vector<std::string_view> names;
  for (const SchedulerSettings& settings : kSettings) {
    if (settings.type == type) names = settings.names;
  }
  for (const auto& [name, value] : training.lr_scheduler_kwargs.items()) {
    const bool is_word = name.ends_with("_type");
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      reader->Fail("lr_scheduler_kwargs", "the schedule '" + type + "' has no setting '" + name +
                                              "'" + DidYouMean(name, names));
    } else if (is_word ? !value.is_string() : !value.is_number()) {
      reader->Fail("lr_scheduler_kwargs", name + (is_word ? " must be text" : " must be a number") +
                                              ", is " + DumpJson(value));
    }
  }
  const bool has_min = training.lr_scheduler_kwargs.contains("min_lr");
  const bool has_rate = training.lr_scheduler_kwargs.contains("min_lr_rate");
  if (type == "cosine_with_min_lr" && has_min == has_rate) {
    reader->Fail("lr_scheduler_kwargs", std::string("the schedule cosine_with_min_lr needs ") +
                                            (has_min ? "only one of " : "one of ") +
                                            "min_lr and min_lr_rate");
  }
}

}  // namespace

void CheckArguments(KeyReader* reader, TrainConfig* config) {
  CheckRequired(reader, *config);
  CheckStage(reader, *config);
  CheckMethod(reader, *config);
  CheckData(reader, config->data);
  CheckIntervals(reader, &config->training);
  CheckEvaluation(reader, config);
  CheckBestModel(reader, &config->training);
  CheckScheduler(reader, config->training);
}

}  // namespace everstep
