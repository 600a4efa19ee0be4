#include "worker/config/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdio>
#include <fstream>

#include "worker/config/arguments.h"
#include "worker/config/known_keys.h"

namespace everstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kLeast[] = "model_name_or_path: models/tiny\ndataset: alpaca\ndo_train: true\n";

std::optional<std::string> NoEnvironment(const std::string&) { return std::nullopt; }

TrainConfig Parse(const std::string& text) {
  auto config = ParseTrainConfig(text, "train.yaml", NoEnvironment);
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return config.value_or(TrainConfig{});
}

TrainConfig ParseWith(const std::string& more) { return Parse(kLeast + more); }

// One of LLaMA-Factory's usual LoRA files.
constexpr char kLora[] = R"(### model
model_name_or_path: Qwen/Qwen3-4B-Instruct-2507
trust_remote_code: true

### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
lora_target: q_proj, v_proj

### dataset
dataset: identity,alpaca_en_demo
template: qwen3_nothink
cutoff_len: 1024
max_samples: 1000
preprocessing_num_workers: 16
dataloader_num_workers: 4

### output
output_dir: saves/qwen3-4b/lora/sft
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
report_to: none  # choices: [none, wandb, tensorboard, swanlab, mlflow]

### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null
)";

TEST(TrainConfigTest, ReadsAUsualLoraFile) {
  const TrainConfig config = Parse(kLora);

  EXPECT_EQ(config.model.model_name_or_path, "Qwen/Qwen3-4B-Instruct-2507");
  EXPECT_EQ(config.finetuning.stage, Stage::kSft);
  EXPECT_EQ(config.finetuning.type, FinetuningType::kLora);
  EXPECT_EQ(config.finetuning.lora.rank, 16);
  EXPECT_THAT(config.finetuning.lora.target, ElementsAre("q_proj", "v_proj"));
  EXPECT_TRUE(config.finetuning.plot_loss);
  EXPECT_THAT(config.data.dataset, ElementsAre("identity", "alpaca_en_demo"));
  EXPECT_EQ(config.data.template_name, "qwen3_nothink");
  EXPECT_EQ(config.data.cutoff_len, 1024);
  EXPECT_EQ(config.data.max_samples, 1000);
  EXPECT_EQ(config.data.preprocessing_num_workers, 16);
  EXPECT_EQ(config.training.output_dir, "saves/qwen3-4b/lora/sft");
  EXPECT_TRUE(config.training.overwrite_output_dir);
  EXPECT_EQ(config.training.logging_steps, 10);
  EXPECT_EQ(config.training.per_device_train_batch_size, 1);
  EXPECT_EQ(config.training.gradient_accumulation_steps, 8);
  EXPECT_EQ(config.training.learning_rate, 1e-4);
  EXPECT_EQ(config.training.lr_scheduler_type, "cosine");
  EXPECT_EQ(config.training.warmup_ratio, 0.1);
  EXPECT_EQ(config.training.precision, Precision::kBFloat16);
  EXPECT_EQ(config.training.resume_from_checkpoint, "");
  EXPECT_THAT(config.training.report_to, IsEmpty());
}

TEST(TrainConfigTest, WarnsOfKeysWithoutEffectALineEach) {
  const TrainConfig config = Parse(kLora);

  EXPECT_THAT(
      config.warnings,
      ElementsAre("train.yaml:3: trust_remote_code has no effect here: no code of the model's is "
                  "ever run",
                  "train.yaml:18: dataloader_num_workers has no effect here: data is prepared "
                  "before the first step",
                  "train.yaml:36: ddp_timeout has no effect here: a lost rank is noticed at once, "
                  "without a timeout"));
}

TEST(TrainConfigTest, DefaultsAreLlamaFactorys) {
  const TrainConfig config = Parse(kLeast);

  EXPECT_EQ(config.finetuning.stage, Stage::kSft);
  EXPECT_EQ(config.finetuning.type, FinetuningType::kLora);
  EXPECT_EQ(config.finetuning.lora.rank, 8);
  EXPECT_FALSE(config.finetuning.lora.alpha.has_value());
  EXPECT_THAT(config.finetuning.lora.target, ElementsAre("all"));
  EXPECT_EQ(config.data.cutoff_len, 2048);
  EXPECT_EQ(config.data.dataset_dir, "data");
  EXPECT_EQ(config.training.output_dir, "trainer_output");
  EXPECT_EQ(config.training.per_device_train_batch_size, 8);
  EXPECT_EQ(config.training.learning_rate, 5e-5);
  EXPECT_EQ(config.training.num_train_epochs, 3);
  EXPECT_EQ(config.training.max_steps, -1);
  EXPECT_EQ(config.training.seed, 42);
  EXPECT_EQ(config.training.precision, Precision::kFloat32);
  EXPECT_TRUE(config.training.gradient_checkpointing);
  EXPECT_FALSE(config.training.do_eval);
  EXPECT_THAT(config.warnings, IsEmpty());
}

TEST(TrainConfigTest, NumbersInEverySpellingAreNumbers) {
  for (const char* spelling : {"1e-4", "1.0e-4", "0.0001", "'1e-4'", "1E-4", "1.e-4", "+1e-4"}) {
    EXPECT_EQ(ParseWith(std::string("learning_rate: ") + spelling).training.learning_rate, 1e-4)
        << spelling;
  }
  EXPECT_EQ(ParseWith("learning_rate: .5").training.learning_rate, 0.5);
  EXPECT_EQ(ParseWith("max_samples: 1e3").data.max_samples, 1000);
  EXPECT_EQ(ParseWith("max_samples: 1_000").data.max_samples, 1000);
  EXPECT_EQ(ParseWith("max_samples: '1000'").data.max_samples, 1000);
}

TEST(TrainConfigTest, BooleansInEverySpellingAreBooleans) {
  for (const char* spelling : {"true", "True", "yes", "on", "'true'", "1"}) {
    EXPECT_TRUE(ParseWith(std::string("packing: ") + spelling).data.packing) << spelling;
  }
  for (const char* spelling : {"false", "False", "no", "off", "'false'", "0"}) {
    EXPECT_FALSE(ParseWith(std::string("packing: ") + spelling).data.packing) << spelling;
  }
}

TEST(TrainConfigTest, ListsMayBeTextWithCommas) {
  EXPECT_THAT(ParseWith("lora_target: [q_proj, v_proj]").finetuning.lora.target,
              ElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(ParseWith("lora_target: ' q_proj,v_proj , '").finetuning.lora.target,
              ElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(ParseWith("add_tokens: [1, 2]").model.add_tokens, ElementsAre("1", "2"));
}

TEST(TrainConfigTest, TheWordNoIsAStrategyThoughYamlReadsABoolean) {
  EXPECT_EQ(ParseWith("save_strategy: no").training.save_strategy, IntervalStrategy::kNo);
  EXPECT_EQ(ParseWith("save_strategy: \"no\"").training.save_strategy, IntervalStrategy::kNo);
  EXPECT_EQ(ParseWith("save_strategy: false").training.save_strategy, IntervalStrategy::kNo);
  EXPECT_EQ(ParseWith("logging_strategy: no").training.logging_strategy, "no");
}

TEST(TrainConfigTest, SchedulerSettingsAreAMappingOrJsonText) {
  for (const char* spelling : {"{min_lr: 1e-6}", "'{\"min_lr\": 1e-6}'"}) {
    const TrainConfig config = ParseWith(
        "lr_scheduler_type: cosine_with_min_lr\n"
        "lr_scheduler_kwargs: " +
        std::string(spelling));
    EXPECT_EQ(config.training.lr_scheduler_kwargs["min_lr"], 1e-6) << spelling;
  }
}

TEST(TrainConfigTest, NullMeansTheDefault) {
  const TrainConfig config =
      ParseWith("lora_rank: null\nmax_samples: ~\ntemplate:\nquantization_bit: null\n");

  EXPECT_EQ(config.finetuning.lora.rank, 8);
  EXPECT_FALSE(config.data.max_samples.has_value());
  EXPECT_EQ(config.data.template_name, "");
}

TEST(TrainConfigTest, TextKeysKeepWhatIsWritten) {
  EXPECT_EQ(ParseWith("model_revision: 0123").model.model_revision, "0123");
  EXPECT_EQ(ParseWith("model_revision: 1e5").model.model_revision, "1e5");
  EXPECT_EQ(ParseWith("default_system: yes").data.default_system, "yes");
}

TEST(TrainConfigTest, FeaturesThatAreSwitchedOffAreNotRefused) {
  const TrainConfig config = ParseWith(
      "use_galore: false\nquantization_bit: null\ndeepspeed: null\nfsdp: ''\nfp16: false\n"
      "streaming: false\ntrain_sampling_strategy: random\n");

  EXPECT_THAT(config.warnings, IsEmpty());
}

TEST(TrainConfigTest, PackingIsOnForPretrainingAlone) {
  EXPECT_FALSE(ParseWith("stage: sft").data.packing);
  const TrainConfig pretraining = ParseWith("stage: pt");
  EXPECT_TRUE(pretraining.data.packing);
  EXPECT_FALSE(pretraining.data.packing_given);
  EXPECT_FALSE(ParseWith("stage: pt\npacking: false").data.packing);
  const TrainConfig neat = ParseWith("neat_packing: true");
  EXPECT_TRUE(neat.data.packing);
  EXPECT_TRUE(neat.data.packing_given);
}

TEST(TrainConfigTest, EvaluationFollowsItsStrategyAndTheLogging) {
  const TrainConfig config = ParseWith("val_size: 0.1\neval_strategy: steps\nlogging_steps: 7");

  EXPECT_TRUE(config.training.do_eval);
  EXPECT_EQ(config.training.eval_steps, 7);
}

TEST(TrainConfigTest, BestModelIsTheOneWithTheLowestLoss) {
  const TrainConfig config = ParseWith(
      "val_size: 10\neval_strategy: steps\neval_steps: 0.1\nsave_steps: 0.3\n"
      "load_best_model_at_end: true");

  EXPECT_EQ(config.training.metric_for_best_model, "loss");
  EXPECT_EQ(config.training.greater_is_better, false);
}

TEST(TrainConfigTest, AWarmupRatioWinsOverSteps) {
  const TrainConfig config = ParseWith("warmup_ratio: 0.0\nwarmup_steps: 20");

  EXPECT_EQ(config.training.warmup_steps, 0);
  EXPECT_THAT(config.warnings, ElementsAre("train.yaml:5: warmup_steps has no effect beside "
                                           "warmup_ratio: remove one of them"));
}

TEST(TrainConfigTest, GradientCheckpointingIsOnUnlessDisabled) {
  EXPECT_FALSE(ParseWith("disable_gradient_checkpointing: true").training.gradient_checkpointing);
  const TrainConfig config = ParseWith("gradient_checkpointing: false");
  EXPECT_TRUE(config.training.gradient_checkpointing);
  EXPECT_THAT(config.warnings,
              ElementsAre("train.yaml:4: gradient_checkpointing stays on, as in LLaMA-Factory: set "
                          "disable_gradient_checkpointing: true"));
}

TEST(TrainConfigTest, OldNamesAreUnderstood) {
  const TrainConfig config = ParseWith("evaluation_strategy: epoch\nval_size: 0.5");

  EXPECT_EQ(config.training.eval_strategy, IntervalStrategy::kEpoch);
  EXPECT_THAT(config.warnings,
              ElementsAre("train.yaml:4: evaluation_strategy is now called eval_strategy"));
}

TEST(TrainConfigTest, KeysThatTransformersFiveDroppedAreAccepted) {
  const TrainConfig config = ParseWith(
      "save_safetensors: true\nno_cuda: true\ninclude_tokens_per_second: true\n"
      "half_precision_backend: auto\ngroup_by_length: false\npast_index: -1\n");

  EXPECT_EQ(config.warnings.size(), 2);  // no_cuda and include_tokens_per_second ask for something
}

TEST(TrainConfigTest, ReplacesEnvironmentVariablesAndReferences) {
  const auto environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "RANK_OF_ADAPTER") return "32";
    return std::nullopt;
  };

  const auto config = ParseTrainConfig(
      std::string(kLeast) +
          "lora_rank: ${oc.env:RANK_OF_ADAPTER}\noutput_dir: saves/${dataset}/${oc.env:OUT, run1}\n"
          "lora_alpha: ${lora_rank}\n",
      "train.yaml", environment);

  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->finetuning.lora.rank, 32);
  EXPECT_EQ(config->finetuning.lora.alpha, 32);
  EXPECT_EQ(config->training.output_dir, "saves/alpaca/run1");
}

TEST(TrainConfigTest, HomeIsFilledIn) {
  const auto environment = [](const std::string& name) -> std::optional<std::string> {
    return name == "HOME" ? std::optional<std::string>("/home/a") : std::nullopt;
  };

  const auto config =
      ParseTrainConfig(std::string(kLeast) + "output_dir: ~/saves\n", "t", environment);

  EXPECT_EQ(config->training.output_dir, "/home/a/saves");
}

TEST(TrainConfigTest, ReadsJsonWithTabs) {
  const TrainConfig config = Parse(
      "{\n\t\"model_name_or_path\": \"m\",\n\t\"dataset\": [\"a\", \"b\"],\n\t\"do_train\": true,"
      "\n\t\"learning_rate\": 1e-5\n}");

  EXPECT_THAT(config.data.dataset, ElementsAre("a", "b"));
  EXPECT_EQ(config.training.learning_rate, 1e-5);
}

TEST(TrainConfigTest, LinesInsideAManifestAreThoseOfTheManifest) {
  const YAML::Node manifest = YAML::Load(
      "spec:\n  replicas: 2\n  train:\n    model_name_or_path: m\n    dataset: d\n"
      "    do_train: true\n    lora_rank: 0\n");

  const auto config = ParseTrainConfig(manifest["spec"]["train"], "job.yaml", NoEnvironment);

  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().message, "job.yaml:7: lora_rank: must be at least 1, is 0");
}

TEST(TrainConfigTest, RefusesAFileThatAliasesBlowUp) {
  std::string text = std::string(kLeast) + "x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 8; ++i) {
    const std::string before = "*x" + std::to_string(i - 1);
    text += "x" + std::to_string(i) + ": &x" + std::to_string(i) + " [" + before;
    for (int j = 1; j < 10; ++j) text += ", " + before;
    text += "]\n";
  }

  const auto config = ParseTrainConfig(text, "train.yaml", NoEnvironment);

  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().message, "train.yaml: is too deep or too large to be a training file");
}

TEST(TrainConfigTest, RefusesAFileThatIsTooLarge) {
  const auto config = ParseTrainConfig(std::string(2 << 20, '#'), "train.yaml", NoEnvironment);

  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().message, "train.yaml: has 2.0 MiB, too large to be a training file");
}

TEST(TrainConfigTest, RawKeysHoldNoSecrets) {
  const TrainConfig config = ParseWith("hf_hub_token: hf_secret\nseed: 3");

  EXPECT_EQ(config.model.hf_hub_token, "hf_secret");
  EXPECT_EQ(config.raw["seed"], 3);
  EXPECT_FALSE(config.raw.contains("hf_hub_token"));
  for (const auto& [name, value] : SettingsTable(config)) {
    EXPECT_THAT(value, testing::Not(HasSubstr("hf_secret"))) << name;
  }
}

TEST(TrainConfigTest, SettingsTableShowsEffectiveValues) {
  const auto rows = SettingsTable(ParseWith("lora_rank: 4\nmax_steps: 12\nwarmup_ratio: 0.1"));

  const auto has = [&](const char* name, const char* value) {
    return std::find(rows.begin(), rows.end(), std::pair<std::string, std::string>(name, value)) !=
           rows.end();
  };
  EXPECT_TRUE(has("lora_alpha", "8"));
  EXPECT_TRUE(has("max_steps", "12"));
  EXPECT_TRUE(has("warmup_ratio", "0.1"));
  EXPECT_TRUE(has("learning_rate", "5e-05"));
  EXPECT_TRUE(has("template", "the tokenizer's own"));
}

TEST(TrainConfigTest, EverySupportedKeyIsRead) {
  auto file = ReadTrainingFile(kLeast, "train.yaml", NoEnvironment);
  std::vector<Problem> problems;
  KeyReader reader(*file, &problems);
  TrainConfig config;

  ReadArguments(&reader, NoEnvironment, &config);

  for (const KnownKey& key : AllKnownKeys()) {
    EXPECT_EQ(reader.seen().contains(key.name), key.support == Support::kSupported) << key.name;
  }
}

TEST(TrainConfigTest, LoadNamesTheFile) {
  const std::string path = testing::TempDir() + "everstep_bad_train.yaml";
  std::ofstream(path) << kLeast << "sed: 1\n";

  const auto config = LoadTrainConfig(path);
  std::remove(path.c_str());

  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().message, path + ":4: unknown key 'sed' (did you mean 'seed'?)");
  EXPECT_FALSE(LoadTrainConfig(path).has_value());
}

}  // namespace
}  // namespace everstep
