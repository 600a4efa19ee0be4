#include "operator/cli/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <sstream>

#include "tests/support/temp_dir.h"

namespace everstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::string kHead =
    "apiVersion: everstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: job}\nspec:\n";
// In lines 6 to 9, when `spec` has one line before it; `more` follows it.
const std::string kTrain =
    "  train:\n    model_name_or_path: models/tiny\n    dataset: alpaca\n    do_train: true\n";

class ManifestTest : public testing::Test {
 protected:
  // Messages name the file as it was given.
  Result<Manifest> Load(const std::string& text) {
    std::ofstream(path_) << text;
    return LoadManifest(path_);
  }
  std::string ErrorOf(const std::string& text) {
    const auto manifest = Load(text);
    if (manifest) return "no error";
    EXPECT_EQ(manifest.error().code, ErrorCode::kInvalidArgument);
    return manifest.error().message;
  }
  std::string At(int line, const std::string& rest) const {
    return path_ + ":" + std::to_string(line) + ": " + rest;
  }

  TempDir directory_;
  const std::string path_ = directory_ / "job.yaml";
};

TEST_F(ManifestTest, AGoodOneIsTheJobAndTheObjectForTheStore) {
  const auto manifest = Load(kHead + "  replicas: 2\n" + kTrain + "    learning_rate: 1.0e-4\n");
  ASSERT_TRUE(manifest.has_value()) << manifest.error().message;
  EXPECT_EQ(manifest->job.name, "job");
  EXPECT_EQ(manifest->job.spec.world_size(), 2);
  EXPECT_EQ(manifest->job.spec.train["dataset"], "alpaca");
  EXPECT_EQ(manifest->object["kind"], "TrainingJob");
  EXPECT_EQ(manifest->object["metadata"]["name"], "job");
  EXPECT_EQ(manifest->object["spec"]["replicas"], 2);
  EXPECT_EQ(manifest->object["spec"]["train"]["learning_rate"], 1e-4);
  EXPECT_THAT(manifest->warnings, IsEmpty());
}

TEST_F(ManifestTest, WarningsOfTheTrainingFileHaveTheManifestsLines) {
  const auto manifest = Load(kHead + "  replicas: 2\n" + kTrain + "    report_to: wandb\n");
  ASSERT_TRUE(manifest.has_value()) << manifest.error().message;
  EXPECT_THAT(manifest->warnings,
              ElementsAre(At(10,
                             "report_to wandb: trackers are not connected; the figures are in "
                             "trainer_log.jsonl")));
}

TEST_F(ManifestTest, WhatHasNoEffectYetIsSaid) {
  const auto manifest = Load(
      kHead + "  gpusPerReplica: 1\n  spares: 1\n  elastic: {onShrink: ScaleBatch}\n" + kTrain);
  ASSERT_TRUE(manifest.has_value()) << manifest.error().message;
  EXPECT_THAT(
      manifest->warnings,
      ElementsAre("spec.gpusPerReplica: GPUs are not used yet: the ranks compute on the CPU",
                  "spec.spares: has no effect yet: a dead rank gets a new process",
                  "spec.elastic.onShrink: ScaleBatch has no effect yet: the batch is kept"));
}

TEST_F(ManifestTest, ProblemsOfTheSpecAndOfTheTrainingFileAreToldTogether) {
  EXPECT_EQ(ErrorOf(kHead + "  replicas: 0\n" + kTrain +
                    "    lora_rnak: 8\n    lora_rank: 0\n  sparse: 1\n"),
            At(5, "spec.replicas: must be at least 1, is 0\n") +
                At(12, "spec.sparse: unknown field (did you mean 'spares'?)\n") +
                At(10, "unknown key 'lora_rnak' (did you mean 'lora_rank'?)\n") +
                At(11, "lora_rank: must be at least 1, is 0"));
}

TEST_F(ManifestTest, TheTrainingFileIsCheckedEvenWhenOnlyItIsWrong) {
  EXPECT_EQ(ErrorOf(kHead + "  replicas: 2\n" + kTrain + "    lora_rank: 0\n"),
            At(10, "lora_rank: must be at least 1, is 0"));
}

TEST_F(ManifestTest, ATrainingFileInOneLineIsInThatLine) {
  EXPECT_EQ(ErrorOf(kHead + "  replicas: -1\n  train: {model_name_or_path: m, dataset: d, "
                            "do_train: true, sede: 1}\n"),
            At(5, "spec.replicas: must be at least 1, is -1\n") +
                At(6, "unknown key 'sede' (did you mean 'seed'?)"));
}

TEST_F(ManifestTest, WhatIsNoTrainingFileIsToldOnce) {
  EXPECT_EQ(ErrorOf(kHead + "  replicas: 2\n  train: train.yaml\n"),
            At(6, "spec.train: must be a mapping, is 'train.yaml'"));
  EXPECT_EQ(ErrorOf(kHead + "  replicas: 2\n"),
            At(4,
               "spec.train: is missing: give a LLaMA-Factory training file here, or "
               "spec.trainFrom, or spec.command for a program of your own"));
}

TEST_F(ManifestTest, AProgramOfOnesOwnNeedsNoTrainingFile) {
  const auto manifest = Load(kHead + "  replicas: 3\n  command: [python3, train.py]\n");
  ASSERT_TRUE(manifest.has_value()) << manifest.error().message;
  EXPECT_THAT(manifest->job.spec.command, ElementsAre("python3", "train.py"));
}

TEST_F(ManifestTest, BrokenYamlIsOneProblem) {
  EXPECT_EQ(ErrorOf(kHead + "  replicas: [1\n" + kTrain),
            At(6, "malformed YAML: end of sequence flow not found"));
  EXPECT_EQ(ErrorOf(""), path_ + ": is empty: a TrainingJob is needed");
}

TEST_F(ManifestTest, AMissingFileIsNamed) {
  const auto manifest = LoadManifest(path_);
  ASSERT_FALSE(manifest.has_value());
  EXPECT_EQ(manifest.error().message, path_ + ": cannot open: No such file or directory");
}

TEST_F(ManifestTest, ADashIsStandardInput) {
  std::istringstream input(kHead + "  replicas: 4\n" + kTrain);
  std::streambuf* const terminal = std::cin.rdbuf(input.rdbuf());
  const auto good = LoadManifest("-");
  input.str(kHead + "  replicas: 0\n" + kTrain);
  input.clear();
  const auto bad = LoadManifest("-");
  std::cin.rdbuf(terminal);

  ASSERT_TRUE(good.has_value()) << good.error().message;
  EXPECT_EQ(good->job.spec.replicas, 4);
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().message, "-:5: spec.replicas: must be at least 1, is 0");
}

}  // namespace
}  // namespace everstep
