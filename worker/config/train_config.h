// A LLaMA-Factory training file as typed values. Key names, defaults and cross-checks are
// LLaMA-Factory 0.9.5's; `optional` marks keys whose absence means something of its own.
#ifndef EVERSTEP_WORKER_CONFIG_TRAIN_CONFIG_H_
#define EVERSTEP_WORKER_CONFIG_TRAIN_CONFIG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace YAML {
class Node;
}

namespace everstep {

enum class Stage { kPt, kSft };
enum class FinetuningType { kFull, kLora, kFreeze };
enum class IntervalStrategy { kNo, kSteps, kEpoch };
enum class MixStrategy { kConcat, kInterleaveUnder, kInterleaveOver };
enum class Precision { kFloat32, kBFloat16 };

struct ModelArguments {
  std::string model_name_or_path;
  std::vector<std::string> adapter_name_or_path;
  std::string cache_dir;
  std::string model_revision = "main";
  std::string hf_hub_token;
  std::string flash_attn = "auto";
  bool disable_gradient_checkpointing = false;
  bool resize_vocab = false;
  std::vector<std::string> add_tokens;
  std::vector<std::string> add_special_tokens;
  bool split_special_tokens = false;
  std::string rope_scaling;  // "", linear, dynamic, yarn, llama3
};

struct DataArguments {
  std::string template_name;  // "" = the tokenizer's own chat template
  std::vector<std::string> dataset;
  std::vector<std::string> eval_dataset;
  std::string dataset_dir = "data";
  int64_t cutoff_len = 2048;  // as in the file; packing works with one less (see data/packing)
  std::optional<int64_t> max_samples;
  double val_size = 0;
  bool train_on_prompt = false;
  bool mask_history = false;
  bool packing = false;        // resolved: the file's value, else true for pt alone
  bool packing_given = false;  // the file sets packing or neat_packing to true
  bool neat_packing = false;
  MixStrategy mix_strategy = MixStrategy::kConcat;
  std::vector<double> interleave_probs;
  bool ignore_pad_token_for_loss = true;
  std::string default_system;
  std::string tool_format;
  bool enable_thinking = true;
  bool preserve_thinking = false;
  bool eval_on_each_dataset = false;
  std::string tokenized_path;
  int64_t preprocessing_num_workers = 0;  // 0 = not given
  int64_t preprocessing_batch_size = 1000;
};

struct LoraArguments {
  int64_t rank = 8;
  std::optional<int64_t> alpha;  // absent = 2 * rank
  double dropout = 0;
  std::vector<std::string> target{"all"};
  std::vector<std::string> additional_target;
  bool use_rslora = false;
  bool use_dora = false;
  std::optional<double> loraplus_lr_ratio;
  double loraplus_lr_embedding = 1e-6;
  bool create_new_adapter = false;
};

struct FreezeArguments {
  int64_t trainable_layers = 2;
  std::vector<std::string> trainable_modules{"all"};
  std::vector<std::string> extra_modules;
};

struct FinetuningArguments {
  Stage stage = Stage::kSft;
  FinetuningType type = FinetuningType::kLora;
  LoraArguments lora;
  FreezeArguments freeze;
  bool use_dft_loss = false;
  bool plot_loss = false;
  bool compute_accuracy = false;
  bool disable_shuffling = false;
};

struct TrainingArguments {
  std::string output_dir = "trainer_output";
  bool overwrite_output_dir = false;
  bool do_train = false;
  bool do_eval = false;  // resolved: also true when eval_strategy is not `no`
  IntervalStrategy eval_strategy = IntervalStrategy::kNo;
  double eval_steps = 0;  // resolved: as logging_steps when not given; below 1 = share of max_steps
  int64_t per_device_train_batch_size = 8;
  int64_t per_device_eval_batch_size = 8;
  int64_t gradient_accumulation_steps = 1;
  double learning_rate = 5e-5;
  double weight_decay = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;
  double num_train_epochs = 3.0;
  int64_t max_steps = -1;
  std::string lr_scheduler_type = "linear";
  Json lr_scheduler_kwargs = Json::object();
  double warmup_ratio = 0;
  double warmup_steps = 0;  // 0 when the file has a warmup_ratio; below 1 it is a ratio itself
  std::string logging_strategy = "steps";
  double logging_steps = 500;
  bool logging_first_step = false;
  bool logging_nan_inf_filter = true;
  IntervalStrategy save_strategy = IntervalStrategy::kSteps;
  double save_steps = 500;
  std::optional<int64_t> save_total_limit;
  bool save_only_model = false;
  int64_t seed = 42;
  std::optional<int64_t> data_seed;
  Precision precision = Precision::kFloat32;
  std::string optim = "adamw_torch";
  double label_smoothing_factor = 0;
  std::optional<double> neftune_noise_alpha;
  bool dataloader_drop_last = false;
  bool gradient_checkpointing = true;  // resolved with disable_gradient_checkpointing
  std::string resume_from_checkpoint;  // "" = the newest valid one of output_dir, if any
  std::vector<std::string> report_to;
  bool include_num_input_tokens_seen = false;
  bool load_best_model_at_end = false;
  std::string metric_for_best_model;      // resolved: "loss" with load_best_model_at_end
  std::optional<bool> greater_is_better;  // resolved: false for a metric that ends in "loss"
};

struct TrainConfig {
  ModelArguments model;
  DataArguments data;
  FinetuningArguments finetuning;
  TrainingArguments training;
  // Accepted, and without effect here; one line each, printed at start.
  std::vector<std::string> warnings;
  // The file's own keys and values, without secrets, for adapter and model cards.
  Json raw = Json::object();
};

// Looks up an environment variable for `${oc.env:NAME}`.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;
EnvironmentLookup ProcessEnvironment();

// Reads `text` (YAML or JSON; `source` is its name in messages) and checks it: types, ranges, and
// the cross-checks of LLaMA-Factory that apply to what Everstep trains. Nothing but `environment`
// is looked at: whether the named files exist is for those who open them. All problems come back
// in one kInvalidArgument error, a line each, in the file's order:
//   "train.yaml:7: unknown key 'lora_rnak' (did you mean 'lora_rank'?)"
//   "train.yaml:9: lora_rank: must be at least 1, is 0"
// `${oc.env:NAME}`, `${oc.env:NAME,default}` and `${other_key}` are replaced.
Result<TrainConfig> ParseTrainConfig(std::string_view text, std::string_view source,
                                     const EnvironmentLookup& environment = ProcessEnvironment());
// The same for a mapping inside a larger document (`spec.train` of a manifest): lines are those of
// that document.
Result<TrainConfig> ParseTrainConfig(const YAML::Node& mapping, std::string_view source,
                                     const EnvironmentLookup& environment = ProcessEnvironment());
// Reads the file; messages name it as `path` does.
Result<TrainConfig> LoadTrainConfig(const std::string& path);

// Rows of the settings table that is printed at start: name and value, the effective ones
// (defaults filled in), without secrets.
std::vector<std::pair<std::string, std::string>> SettingsTable(const TrainConfig& config);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CONFIG_TRAIN_CONFIG_H_
