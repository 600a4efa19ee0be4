// Bad training files, each with the exact message that a person gets: file, line, key, what is
// wrong, and what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "worker/config/train_config.h"

namespace everstep {
namespace {

struct BadFile {
  const char* name;
  std::string text;
  std::string message;
};

void PrintTo(const BadFile& file, std::ostream* out) { *out << file.name; }

// A good file of three lines, so that the first line of `more` is line 4.
std::string With(const std::string& more) {
  return "model_name_or_path: models/tiny\ndataset: alpaca\ndo_train: true\n" + more + "\n";
}

std::optional<std::string> NoEnvironment(const std::string&) { return std::nullopt; }

class BadTrainingFile : public testing::TestWithParam<BadFile> {};

TEST_P(BadTrainingFile, IsRefusedWithItsLine) {
  const auto config = ParseTrainConfig(GetParam().text, "train.yaml", NoEnvironment);

  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(config.error().message, GetParam().message);
}

const BadFile kStructure[] = {
    {"Empty", "",
     "train.yaml: is empty: a training file needs at least model_name_or_path, dataset and "
     "do_train"},
    {"OnlyAComment", "# nothing yet\n",
     "train.yaml: is empty: a training file needs at least model_name_or_path, dataset and "
     "do_train"},
    {"AList", "- a\n- b\n", "train.yaml:1: a training file is a list of 'key: value' lines"},
    {"Prose", "train my model please\n",
     "train.yaml:1: a training file is a list of 'key: value' lines"},
    {"BrokenYaml", With("lora_target: [q_proj, v_proj"),
     "train.yaml:5: malformed YAML: end of sequence flow not found"},
    {"WrongIndentation", With("seed: 1\n  bf16: true"),
     "train.yaml:5: malformed YAML: illegal map value"},
    {"BrokenJson", "{\"model_name_or_path\": \"m\",\n \"dataset\": \"d\"\n \"do_train\": true}",
     "train.yaml:3: malformed YAML: end of map flow not found"},
    {"TwoDocuments", With("---\nseed: 1"),
     "train.yaml:5: a second document ('---'): a training file is one document"},
    {"KeyTwice", With("seed: 1\nbf16: true\nseed: 2"),
     "train.yaml:6: key 'seed' is given twice (first in line 4): remove one"},
    {"KeyIsAList", With("[a, b]: 1"), "train.yaml:4: a key must be text"},
    {"MergeKey", With("<<: {seed: 1}"),
     "train.yaml:4: merge keys (<<) are not read: write the keys out"},
    {"EnvironmentVariableNotSet", With("output_dir: ${oc.env:OUT}"),
     "train.yaml:4: output_dir: environment variable OUT is not set: set it, or write "
     "${oc.env:OUT,default}"},
    {"UnknownResolver", With("output_dir: ${oc.decode:x}"),
     "train.yaml:4: output_dir: ${oc.decode:x}: only ${oc.env:NAME} and ${key} can be used here"},
    {"ReferenceToNothing", With("output_dir: saves/${modle}"),
     "train.yaml:4: output_dir: ${modle} refers to a key that this file does not have"},
    {"ReferenceInACircle", With("output_dir: ${run_name}\nrun_name: ${output_dir}"),
     "train.yaml:4: output_dir: ${...} refers to itself: break the circle\n"
     "train.yaml:5: run_name: ${...} refers to itself: break the circle"},
    {"UnclosedReference", With("output_dir: saves/${oc.env:OUT"),
     "train.yaml:4: output_dir: '${' without its '}' in 'saves/${oc.env:OUT'"},
};

const BadFile kKeys[] = {
    {"UnknownKeyWithANearOne", With("lora_rnak: 8"),
     "train.yaml:4: unknown key 'lora_rnak' (did you mean 'lora_rank'?)"},
    {"UnknownKeyWithNoneNear", With("colour: blue"), "train.yaml:4: unknown key 'colour'"},
    {"OldAndNewName", With("eval_strategy: no\nevaluation_strategy: no"),
     "train.yaml:5: evaluation_strategy: is the old name of eval_strategy, which is given too: "
     "remove it"},
    {"NoModel", "dataset: alpaca\ndo_train: true\n",
     "train.yaml: model_name_or_path: is missing: set it to a model directory or a hub name"},
    {"NoDataset", "model_name_or_path: m\ndo_train: true\n",
     "train.yaml: dataset: is missing: name at least one data set of dataset_info.json"},
    {"EmptyDataset", "model_name_or_path: m\ndataset: \"\"\ndo_train: true\n",
     "train.yaml:2: dataset: is missing: name at least one data set of dataset_info.json"},
    {"NothingToDo", "model_name_or_path: m\ndataset: d\n",
     "train.yaml: do_train: must be true, or nothing would be trained"},
    {"AllMissing", "seed: 1\n",
     "train.yaml: model_name_or_path: is missing: set it to a model directory or a hub name\n"
     "train.yaml: dataset: is missing: name at least one data set of dataset_info.json\n"
     "train.yaml: do_train: must be true, or nothing would be trained"},
    {"SeveralAtOnce", With("lora_rank: 0\nbf166: true\nlearning_rate: fast"),
     "train.yaml:4: lora_rank: must be at least 1, is 0\n"
     "train.yaml:5: unknown key 'bf166' (did you mean 'bf16'?)\n"
     "train.yaml:6: learning_rate: must be a number, is 'fast'"},
};

const BadFile kTypesAndRanges[] = {
    {"StageUnknown", With("stage: sftt"), "train.yaml:4: stage: must be one of pt, sft; is 'sftt'"},
    {"FinetuningTypeUnknown", With("finetuning_type: qlora"),
     "train.yaml:4: finetuning_type: must be one of lora, full, freeze; is 'qlora'"},
    {"BoolIsText", With("bf16: maybe"), "train.yaml:4: bf16: must be true or false, is 'maybe'"},
    {"BoolIsANumber", With("packing: 2"), "train.yaml:4: packing: must be true or false, is 2"},
    {"IntegerIsAFraction", With("lora_rank: 8.5"),
     "train.yaml:4: lora_rank: must be a whole number, is 8.5"},
    {"NumberIsAList", With("learning_rate: [1e-4]"),
     "train.yaml:4: learning_rate: must be a number, is a list"},
    {"NumberIsNan", With("learning_rate: .nan"),
     "train.yaml:4: learning_rate: must be a number, is '.nan'"},
    {"NumberOverflows", With("learning_rate: 1e999"),
     "train.yaml:4: learning_rate: must be a number, is '1e999'"},
    {"TextIsAMapping", With("output_dir: {a: b}"),
     "train.yaml:4: output_dir: must be text, is a mapping"},
    {"ListIsAMapping", With("lora_target: {q_proj: true}"),
     "train.yaml:4: lora_target: must be a list, or names with commas between them, is a mapping"},
    {"ListOfLists", With("lora_target: [[q_proj]]"),
     "train.yaml:4: lora_target: every item of the list must be text"},
    {"BatchSizeZero", With("per_device_train_batch_size: 0"),
     "train.yaml:4: per_device_train_batch_size: must be at least 1, is 0"},
    {"AccumulationNegative", With("gradient_accumulation_steps: -2"),
     "train.yaml:4: gradient_accumulation_steps: must be at least 1, is -2"},
    {"LearningRateNegative", With("learning_rate: -1e-4"),
     "train.yaml:4: learning_rate: must be at least 0, is -1e-4"},
    {"WarmupRatioTooLarge", With("warmup_ratio: 1.5"),
     "train.yaml:4: warmup_ratio: must be between 0 and 1, is 1.5"},
    {"BetaIsOne", With("adam_beta2: 1.0"),
     "train.yaml:4: adam_beta2: must be at least 0 and below 1, is 1.0"},
    {"DropoutIsOne", With("lora_dropout: 1"),
     "train.yaml:4: lora_dropout: must be at least 0 and below 1, is 1"},
    {"CutoffZero", With("cutoff_len: 0"), "train.yaml:4: cutoff_len: must be at least 1, is 0"},
    {"MaxSamplesZero", With("max_samples: 0"),
     "train.yaml:4: max_samples: must be at least 1, is 0"},
    {"EpochsZero", With("num_train_epochs: 0"),
     "train.yaml:4: num_train_epochs: must be greater than 0, is 0"},
    {"MaxStepsBelowMinusOne", With("max_steps: -5"),
     "train.yaml:4: max_steps: must be at least -1, is -5"},
    {"SeedTooLarge", With("seed: 4294967296"),
     "train.yaml:4: seed: must be between 0 and 4294967295, is 4294967296"},
    {"StepsAreAFraction", With("save_steps: 10.5"),
     "train.yaml:4: save_steps: must be a whole number when above 1, is 10.5"},
    {"LoggingStepsZero", With("logging_steps: 0"),
     "train.yaml:4: logging_steps: must be greater than 0, or set logging_strategy: no"},
    {"SaveStepsZero", With("save_steps: 0"),
     "train.yaml:4: save_steps: must be greater than 0, or set save_strategy: no"},
    {"OptimizerUnknown", With("optim: sgd"),
     "train.yaml:4: optim: must be one of adamw_torch, adamw_torch_fused, adamw_hf; is 'sgd'"},
    {"RopeScalingUnknown", With("rope_scaling: longer"),
     "train.yaml:4: rope_scaling: must be one of linear, dynamic, yarn, llama3; is 'longer'"},
    {"SchedulerKwargsNoJson", With("lr_scheduler_kwargs: '{min_lr: 1'"),
     "train.yaml:4: lr_scheduler_kwargs: must be a mapping or JSON text of one, is '{min_lr: 1'"},
    {"ThinkingIsNull", With("enable_thinking: null"),
     "train.yaml:4: enable_thinking: null is not done: set true or false"},
};

const BadFile kTogether[] = {
    {"NeatPackingInPretraining", With("stage: pt\nneat_packing: true"),
     "train.yaml:5: neat_packing: belongs to stage sft: remove it, or set stage: sft"},
    {"TrainOnPromptInPretraining", With("stage: pt\ntrain_on_prompt: true"),
     "train.yaml:5: train_on_prompt: belongs to stage sft: remove it, or set stage: sft"},
    {"MaskHistoryInPretraining", With("stage: pt\nmask_history: true"),
     "train.yaml:5: mask_history: belongs to stage sft: remove it, or set stage: sft"},
    {"MaskHistoryWithTrainOnPrompt", With("mask_history: true\ntrain_on_prompt: true"),
     "train.yaml:4: mask_history: cannot be used together with train_on_prompt: remove one"},
    {"AdapterWithFull", With("finetuning_type: full\nadapter_name_or_path: a"),
     "train.yaml:5: adapter_name_or_path: belongs to finetuning_type lora: remove it"},
    {"LoraPlusWithFull", With("finetuning_type: full\nloraplus_lr_ratio: 16.0"),
     "train.yaml:5: loraplus_lr_ratio: belongs to finetuning_type lora: remove it"},
    {"DoraWithFreeze", With("finetuning_type: freeze\nuse_dora: true"),
     "train.yaml:5: use_dora: belongs to finetuning_type lora: remove it"},
    {"RsloraWithFull", With("finetuning_type: full\nuse_rslora: true"),
     "train.yaml:5: use_rslora: belongs to finetuning_type lora: remove it"},
    {"NoLoraTarget", With("lora_target: []"),
     "train.yaml:4: lora_target: must name at least one layer, or be all"},
    {"FreezeNothing", With("finetuning_type: freeze\nfreeze_trainable_layers: 0"),
     "train.yaml:5: freeze_trainable_layers: is 0, so that nothing would be trained: set it to at "
     "least 1"},
    {"EvaluationWithoutData", With("eval_strategy: steps\neval_steps: 10"),
     "train.yaml:4: eval_strategy: there is nothing to evaluate on: set eval_dataset or val_size"},
    {"DoEvalWithoutData", With("do_eval: true"),
     "train.yaml:4: do_eval: there is nothing to evaluate on: set eval_dataset or val_size"},
    {"ValSizeWithEvalDataset", With("val_size: 0.1\neval_dataset: b"),
     "train.yaml:4: val_size: cannot be used together with eval_dataset: remove one"},
    {"ValSizeIsOne", With("val_size: 1"),
     "train.yaml:4: val_size: is 1: give a share below 1, or at least 2 examples"},
    {"ValSizeAFractionAboveOne", With("val_size: 2.5"),
     "train.yaml:4: val_size: must be a whole number of examples, or a share below 1; is 2.5"},
    {"ProbabilitiesWithConcat", With("interleave_probs: 1.0"),
     "train.yaml:4: interleave_probs: belongs to an interleaving mix_strategy: remove it, or set "
     "mix_strategy: interleave_under"},
    {"TooManyProbabilities", With("mix_strategy: interleave_under\ninterleave_probs: 0.5,0.5"),
     "train.yaml:5: interleave_probs: has 2 entries and dataset 1: give one for each"},
    {"ProbabilitiesDoNotAddUp", With("mix_strategy: interleave_over\ninterleave_probs: 0.5"),
     "train.yaml:5: interleave_probs: must add up to 1, add up to 0.5"},
    {"BestModelWithoutEvaluation", With("load_best_model_at_end: true"),
     "train.yaml:4: load_best_model_at_end: needs eval_strategy and save_strategy to be the same"},
    {"BestModelBetweenEvaluations",
     With("load_best_model_at_end: true\nval_size: 0.1\neval_strategy: steps\neval_steps: 20\n"
          "save_steps: 50"),
     "train.yaml:4: load_best_model_at_end: needs save_steps to be a multiple of eval_steps: they "
     "are 50 and 20"},
    {"ScheduleHasNoSuchSetting",
     With("lr_scheduler_type: cosine\nlr_scheduler_kwargs: {cycles: 2}"),
     "train.yaml:5: lr_scheduler_kwargs: the schedule 'cosine' has no setting 'cycles'"},
    {"MinLrMissing", With("lr_scheduler_type: cosine_with_min_lr"),
     "train.yaml: lr_scheduler_kwargs: the schedule cosine_with_min_lr needs one of min_lr and "
     "min_lr_rate"},
    {"MinLrTwice",
     With(
         "lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 0, min_lr_rate: 0}"),
     "train.yaml:5: lr_scheduler_kwargs: the schedule cosine_with_min_lr needs only one of min_lr "
     "and min_lr_rate"},
    {"ScheduleSettingIsText",
     With("lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycles: a}"),
     "train.yaml:5: lr_scheduler_kwargs: num_cycles must be a number, is \"a\""},
};

const BadFile kNotDone[] = {
    {"Dpo", With("stage: dpo\npref_beta: 0.1"),
     "train.yaml:4: stage: preference training (dpo) is not done yet: stage is pt or sft"},
    {"Ppo", With("stage: ppo\nreward_model: r"),
     "train.yaml:4: stage: PPO is not done yet: stage is pt or sft"},
    {"RewardModel", With("stage: rm"),
     "train.yaml:4: stage: reward model training (rm) is not done yet: stage is pt or sft"},
    {"Kto", With("stage: kto"),
     "train.yaml:4: stage: preference training (kto) is not done yet: stage is pt or sft"},
    {"Oft", With("finetuning_type: oft\noft_block_size: 32"),
     "train.yaml:4: finetuning_type: OFT is not done yet: use lora, full or freeze"},
    {"Quantized", With("quantization_bit: 4"),
     "train.yaml:4: quantization_bit: training on a quantized model is not done yet: remove it and "
     "use the original weights"},
    {"DeepSpeed", With("deepspeed: examples/deepspeed/ds_z3_config.json"),
     "train.yaml:4: deepspeed: DeepSpeed's ZeRO is not done yet: remove deepspeed, every rank "
     "holds the whole model"},
    {"DeepSpeedInline", With("deepspeed: {zero_optimization: {stage: 3}}"),
     "train.yaml:4: deepspeed: DeepSpeed's ZeRO is not done yet: remove deepspeed, every rank "
     "holds the whole model"},
    {"Fp16", With("fp16: true"), "train.yaml:4: fp16: fp16 is not done: use bf16: true"},
    {"PureBf16", With("pure_bf16: true"),
     "train.yaml:4: pure_bf16: training without an fp32 copy of the weights needs a GPU, which is "
     "not done yet: use bf16: true"},
    {"FromScratch", With("train_from_scratch: true"),
     "train.yaml:4: train_from_scratch: random weights are not done yet: remove it, or make a "
     "model "
     "directory with them"},
    {"Streaming", With("streaming: true\nmax_steps: 10"),
     "train.yaml:4: streaming: reading data as a stream is not done yet: remove streaming (and "
     "buffer_size)"},
    {"Galore", With("finetuning_type: full\nuse_galore: true"),
     "train.yaml:5: use_galore: GaLore is not done yet: remove use_galore"},
    {"Predict", With("predict_with_generate: true"),
     "train.yaml:4: predict_with_generate: generation is not done yet: remove it"},
    {"OnlineData", With("dataset_dir: ONLINE"),
     "train.yaml:4: dataset_dir: data sets from the hub are not done yet: give a folder with "
     "dataset_info.json"},
    {"PaddingInTheLoss", With("ignore_pad_token_for_loss: false"),
     "train.yaml:4: ignore_pad_token_for_loss: counting padding in the loss is not done yet: "
     "remove it"},
    {"InterleaveOnce", With("mix_strategy: interleave_once"),
     "train.yaml:4: mix_strategy: is not done (it fails in LLaMA-Factory too): use "
     "interleave_under or interleave_over"},
    {"Plateau", With("lr_scheduler_type: reduce_lr_on_plateau"),
     "train.yaml:4: lr_scheduler_type: a schedule that follows the evaluation loss is not done "
     "yet: use cosine or linear"},
};

std::string NameOf(const testing::TestParamInfo<BadFile>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Structure, BadTrainingFile, testing::ValuesIn(kStructure), NameOf);
INSTANTIATE_TEST_SUITE_P(Keys, BadTrainingFile, testing::ValuesIn(kKeys), NameOf);
INSTANTIATE_TEST_SUITE_P(Values, BadTrainingFile, testing::ValuesIn(kTypesAndRanges), NameOf);
INSTANTIATE_TEST_SUITE_P(Together, BadTrainingFile, testing::ValuesIn(kTogether), NameOf);
INSTANTIATE_TEST_SUITE_P(NotDone, BadTrainingFile, testing::ValuesIn(kNotDone), NameOf);

}  // namespace
}  // namespace everstep
