#include "worker/config/arguments.h"

#include <algorithm>

namespace everstep {
namespace {

// What NumPy's generator accepts as a seed, which LLaMA-Factory seeds too.
constexpr Range kSeed{.min = 0, .max = 4294967295.0};

void ReadWord(KeyReader* reader, std::string_view key,
              std::initializer_list<std::string_view> words, std::string* target) {
  std::vector<std::string_view> list(words);
  reader->Word(key, list, target);
}

void ReadModel(KeyReader* reader, ModelArguments* model) {
  reader->Text("model_name_or_path", &model->model_name_or_path);
  reader->TextList("adapter_name_or_path", &model->adapter_name_or_path);
  reader->Text("cache_dir", &model->cache_dir);
  reader->Text("model_revision", &model->model_revision);
  reader->Text("hf_hub_token", &model->hf_hub_token);
  ReadWord(reader, "flash_attn", {"auto", "disabled", "sdpa", "fa2", "fa3"}, &model->flash_attn);
  reader->Bool("disable_gradient_checkpointing", &model->disable_gradient_checkpointing);
  reader->Bool("resize_vocab", &model->resize_vocab);
  reader->TextList("add_tokens", &model->add_tokens);
  reader->TextList("add_special_tokens", &model->add_special_tokens);
  reader->Bool("split_special_tokens", &model->split_special_tokens);
  ReadWord(reader, "rope_scaling", {"linear", "dynamic", "yarn", "llama3"}, &model->rope_scaling);
}

void ReadDataSets(KeyReader* reader, DataArguments* data) {
  reader->TextList("dataset", &data->dataset);
  reader->TextList("eval_dataset", &data->eval_dataset);
  reader->Text("dataset_dir", &data->dataset_dir);
  reader->Integer("max_samples", kAtLeastOne, &data->max_samples);
  reader->Number("val_size", kAtLeastZero, &data->val_size);
  reader->Bool("eval_on_each_dataset", &data->eval_on_each_dataset);
  reader->Choice<MixStrategy>("mix_strategy",
                              {{"concat", MixStrategy::kConcat},
                               {"interleave_under", MixStrategy::kInterleaveUnder},
                               {"interleave_over", MixStrategy::kInterleaveOver}},
                              &data->mix_strategy);
  reader->NumberList("interleave_probs", kShare, &data->interleave_probs);
  reader->Integer("preprocessing_num_workers", kAtLeastOne, &data->preprocessing_num_workers);
  reader->Integer("preprocessing_batch_size", kAtLeastOne, &data->preprocessing_batch_size);
}

void ReadTemplate(KeyReader* reader, DataArguments* data) {
  reader->Text("template", &data->template_name);
  reader->Integer("cutoff_len", kAtLeastOne, &data->cutoff_len);
  reader->Bool("train_on_prompt", &data->train_on_prompt);
  reader->Bool("mask_history", &data->mask_history);
  reader->Bool("neat_packing", &data->neat_packing);
  reader->Bool("ignore_pad_token_for_loss", &data->ignore_pad_token_for_loss);
  reader->Text("default_system", &data->default_system);
  reader->Text("tool_format", &data->tool_format);
  reader->Bool("preserve_thinking", &data->preserve_thinking);
  reader->Bool("enable_thinking", &data->enable_thinking);
  if (reader->GivenAsNull("enable_thinking")) {
    reader->Fail("enable_thinking", "null is not done: set true or false");
  }
}

void ReadPacking(KeyReader* reader, Stage stage, DataArguments* data) {
  std::optional<bool> packing;
  reader->Bool("packing", &packing);
  if (data->neat_packing) packing = true;
  data->packing_given = packing.value_or(false);
  data->packing = packing.value_or(stage == Stage::kPt);
}

void ReadLora(KeyReader* reader, LoraArguments* lora) {
  reader->Integer("lora_rank", kAtLeastOne, &lora->rank);
  reader->Integer("lora_alpha", kAtLeastZero, &lora->alpha);
  if (lora->alpha == 0) lora->alpha.reset();  // as LLaMA-Factory's `lora_alpha or 2 * lora_rank`
  reader->Number("lora_dropout", kBelowOne, &lora->dropout);
  reader->TextList("lora_target", &lora->target);
  reader->TextList("additional_target", &lora->additional_target);
  reader->Bool("use_rslora", &lora->use_rslora);
  reader->Bool("use_dora", &lora->use_dora);
  reader->Number("loraplus_lr_ratio", kAboveZero, &lora->loraplus_lr_ratio);
  reader->Number("loraplus_lr_embedding", kAtLeastZero, &lora->loraplus_lr_embedding);
  reader->Bool("create_new_adapter", &lora->create_new_adapter);
}

void ReadFinetuning(KeyReader* reader, FinetuningArguments* finetuning) {
  reader->Choice<Stage>("stage", {{"pt", Stage::kPt}, {"sft", Stage::kSft}}, &finetuning->stage);
  reader->Choice<FinetuningType>("finetuning_type",
                                 {{"lora", FinetuningType::kLora},
                                  {"full", FinetuningType::kFull},
                                  {"freeze", FinetuningType::kFreeze}},
                                 &finetuning->type);
  ReadLora(reader, &finetuning->lora);
  FreezeArguments* freeze = &finetuning->freeze;
  reader->Integer("freeze_trainable_layers", kAny, &freeze->trainable_layers);
  reader->TextList("freeze_trainable_modules", &freeze->trainable_modules);
  reader->TextList("freeze_extra_modules", &freeze->extra_modules);
  reader->Bool("use_dft_loss", &finetuning->use_dft_loss);
  reader->Bool("plot_loss", &finetuning->plot_loss);
  reader->Bool("compute_accuracy", &finetuning->compute_accuracy);
  reader->Bool("disable_shuffling", &finetuning->disable_shuffling);
}

void ReadBatchAndSteps(KeyReader* reader, TrainingArguments* training) {
  reader->Integer("per_device_train_batch_size", kAtLeastOne,
                  &training->per_device_train_batch_size);
  reader->Integer("per_device_eval_batch_size", kAtLeastOne, &training->per_device_eval_batch_size);
  reader->Integer("gradient_accumulation_steps", kAtLeastOne,
                  &training->gradient_accumulation_steps);
  reader->Number("num_train_epochs", kAboveZero, &training->num_train_epochs);
  reader->Integer("max_steps", Range{.min = -1}, &training->max_steps);
  reader->Bool("dataloader_drop_last", &training->dataloader_drop_last);
  reader->Integer("seed", kSeed, &training->seed);
  reader->Integer("data_seed", kSeed, &training->data_seed);
}

void ReadOptimizer(KeyReader* reader, TrainingArguments* training) {
  reader->Number("learning_rate", kAtLeastZero, &training->learning_rate);
  reader->Number("weight_decay", kAtLeastZero, &training->weight_decay);
  reader->Number("adam_beta1", kBelowOne, &training->adam_beta1);
  reader->Number("adam_beta2", kBelowOne, &training->adam_beta2);
  reader->Number("adam_epsilon", kAtLeastZero, &training->adam_epsilon);
  reader->Number("max_grad_norm", kAtLeastZero, &training->max_grad_norm);
  ReadWord(reader, "optim", {"adamw_torch", "adamw_torch_fused", "adamw_hf"}, &training->optim);
  ReadWord(reader, "lr_scheduler_type",
           {"linear", "cosine", "cosine_with_restarts", "polynomial", "constant",
            "constant_with_warmup", "inverse_sqrt", "cosine_with_min_lr", "warmup_stable_decay"},
           &training->lr_scheduler_type);
  reader->Object("lr_scheduler_kwargs", &training->lr_scheduler_kwargs);
  reader->Number("warmup_ratio", kShare, &training->warmup_ratio);
  reader->Number("warmup_steps", kAtLeastZero, &training->warmup_steps);
  // transformers 5's rule (4 had it the other way round).
  if (reader->Given("warmup_ratio")) training->warmup_steps = 0;
  reader->Number("label_smoothing_factor", kBelowOne, &training->label_smoothing_factor);
  reader->Number("neftune_noise_alpha", kAtLeastZero, &training->neftune_noise_alpha);
  bool bf16 = false;
  reader->Bool("bf16", &bf16);
  training->precision = bf16 ? Precision::kBFloat16 : Precision::kFloat32;
}

void ReadStrategy(KeyReader* reader, std::string_view key, IntervalStrategy* strategy) {
  reader->Choice<IntervalStrategy>(key,
                                   {{"no", IntervalStrategy::kNo},
                                    {"steps", IntervalStrategy::kSteps},
                                    {"epoch", IntervalStrategy::kEpoch}},
                                   strategy);
}

void ReadReporting(KeyReader* reader, TrainingArguments* training) {
  ReadWord(reader, "logging_strategy", {"no", "steps", "epoch"}, &training->logging_strategy);
  reader->Number("logging_steps", kAtLeastZero, &training->logging_steps);
  reader->Bool("logging_first_step", &training->logging_first_step);
  reader->Bool("logging_nan_inf_filter", &training->logging_nan_inf_filter);
  reader->Bool("do_eval", &training->do_eval);
  ReadStrategy(reader, "eval_strategy", &training->eval_strategy);
  reader->Number("eval_steps", kAtLeastZero, &training->eval_steps);
  reader->TextList("report_to", &training->report_to);
  std::erase(training->report_to, "none");
  // A boolean, or the word for which tokens are counted.
  std::string tokens_seen = "no";
  ReadWord(reader, "include_num_input_tokens_seen",
           {"no", "all", "non_padding", "true", "false", "True", "False"}, &tokens_seen);
  training->include_num_input_tokens_seen =
      tokens_seen != "no" && tokens_seen != "false" && tokens_seen != "False";
}

void ReadSaving(KeyReader* reader, TrainingArguments* training) {
  ReadStrategy(reader, "save_strategy", &training->save_strategy);
  reader->Number("save_steps", kAtLeastZero, &training->save_steps);
  reader->Integer("save_total_limit", kAny, &training->save_total_limit);
  // As in transformers: no limit.
  if (training->save_total_limit <= 0) training->save_total_limit.reset();
  reader->Bool("save_only_model", &training->save_only_model);
  reader->Text("resume_from_checkpoint", &training->resume_from_checkpoint);
  // Switched on or off, without a path: the newest one is taken either way.
  if (ResolvePlainScalar(training->resume_from_checkpoint).is_boolean()) {
    training->resume_from_checkpoint.clear();
  }
  reader->Bool("load_best_model_at_end", &training->load_best_model_at_end);
  reader->Text("metric_for_best_model", &training->metric_for_best_model);
  reader->Bool("greater_is_better", &training->greater_is_better);
}

void ReadOutput(KeyReader* reader, const EnvironmentLookup& environment,
                TrainingArguments* training) {
  reader->Text("output_dir", &training->output_dir);
  if (training->output_dir.starts_with("~/")) {
    if (const auto home = environment("HOME")) {
      training->output_dir = *home + training->output_dir.substr(1);
    }
  }
  reader->Bool("overwrite_output_dir", &training->overwrite_output_dir);
  reader->Bool("do_train", &training->do_train);
}

}  // namespace

void ReadArguments(KeyReader* reader, const EnvironmentLookup& environment, TrainConfig* config) {
  ReadModel(reader, &config->model);
  ReadFinetuning(reader, &config->finetuning);
  ReadDataSets(reader, &config->data);
  ReadTemplate(reader, &config->data);
  ReadPacking(reader, config->finetuning.stage, &config->data);
  TrainingArguments* training = &config->training;
  ReadOutput(reader, environment, training);
  ReadBatchAndSteps(reader, training);
  ReadOptimizer(reader, training);
  ReadReporting(reader, training);
  ReadSaving(reader, training);
  bool gradient_checkpointing = false;
  reader->Bool("gradient_checkpointing", &gradient_checkpointing);
  training->gradient_checkpointing =
      gradient_checkpointing || !config->model.disable_gradient_checkpointing;
}

}  // namespace everstep
