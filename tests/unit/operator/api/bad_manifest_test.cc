// What people get wrong in a manifest, and the exact words that they are told. Every message is one
// line: file, line, field, what is wrong, what to do.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "operator/api/document.h"
#include "operator/api/training_job.h"

namespace everstep {
namespace {

struct BadManifest {
  const char* name;
  std::string text;
  std::string error;
};

// Lines 1 to 4 are right; `spec` begins in line 5.
std::string Spec(const std::string& spec) {
  return "apiVersion: everstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: job}\nspec:\n" +
         spec;
}
// The same with a training file in line 5; `more` begins in line 6.
std::string Train(const std::string& more) { return Spec("  train: {stage: sft}\n" + more); }

std::string At(int line, const std::string& rest) {
  return "job.yaml:" + std::to_string(line) + ": " + rest;
}

const std::string kNoTrain =
    "spec.train: is missing: give a LLaMA-Factory training file here, or spec.trainFrom, or "
    "spec.command for a program of your own";

std::vector<BadManifest> Documents() {
  return {
      {"Empty", "", "job.yaml: is empty: a TrainingJob is needed"},
      {"OnlyComments", "# nothing\n", "job.yaml: is empty: a TrainingJob is needed"},
      {"SeveralDocuments", Train("") + "---\n" + Train(""),
       "job.yaml: holds 2 documents: give one TrainingJob a file"},
      {"NoMapping", "- a\n- b\n", "job.yaml:1: is not a mapping: it starts with apiVersion"},
      {"Text", "hello\n", "job.yaml:1: is not a mapping: it starts with apiVersion"},
      {"Syntax", Spec("  replicas: [1\n  train: {}\n"),
       At(6, "malformed YAML: end of sequence flow not found")},
      {"Indentation", Spec("  replicas: 1\n   spares: 2\n"),
       At(6, "malformed YAML: illegal map value")},
      {"Tab", Spec("\treplicas: 1\n"), At(5, "malformed YAML: illegal map value")},
      {"RepeatedKey", Train("  replicas: 1\n  replicas: 2\n"),
       At(7, "spec.replicas: is given twice (first in line 6): remove one")},
      {"RepeatedKeyInTrain", Spec("  train:\n    stage: sft\n    stage: pt\n"),
       At(7, "spec.train.stage: is given twice (first in line 6): remove one")},
      {"BareTrainingFile", "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\n",
       "job.yaml:1: is a LLaMA-Factory training file: put it under spec.train of a TrainingJob "
       "(apiVersion: everstep.dev/v1alpha1, kind: TrainingJob, metadata: {name: my-job}, "
       "spec: {replicas: 1, train: {...}})"},
  };
}

std::vector<BadManifest> Identities() {
  const std::string rest = "spec: {train: {stage: sft}}\n";
  const std::string api = "apiVersion: everstep.dev/v1alpha1\n", kind = "kind: TrainingJob\n";
  return {
      {"NoApiVersion", kind + "metadata: {name: job}\n" + rest,
       "job.yaml: apiVersion: is missing: must be everstep.dev/v1alpha1"},
      {"OldApiVersion", "apiVersion: everstep.dev/v1\n" + kind + "metadata: {name: job}\n" + rest,
       At(1, "apiVersion: must be everstep.dev/v1alpha1, is \"everstep.dev/v1\"")},
      {"NoKind", api + "metadata: {name: job}\n" + rest,
       "job.yaml: kind: is missing: must be TrainingJob"},
      {"OtherKind", api + "kind: PyTorchJob\nmetadata: {name: job}\nspec: {runPolicy: {}}\n",
       At(2, "kind: must be TrainingJob, is \"PyTorchJob\"")},
      {"NoMetadata", api + kind + rest, "job.yaml: metadata.name: is missing: give the job a name"},
      {"NoName", api + kind + "metadata: {labels: {}}\n" + rest,
       At(3, "metadata.name: is missing: give the job a name")},
      {"NumberAsName", api + kind + "metadata: {name: 7}\n" + rest,
       At(3, "metadata.name: must be text (quote it), is 7")},
      {"UpperCaseName", api + kind + "metadata: {name: MyJob}\n" + rest,
       At(3,
          "metadata.name: must be lower-case letters, digits and '-', begin with a letter and not "
          "end with '-', is 'MyJob'")},
      {"NameWithDots", api + kind + "metadata: {name: qwen2.5}\n" + rest,
       At(3,
          "metadata.name: must be lower-case letters, digits and '-', begin with a letter and not "
          "end with '-', is 'qwen2.5'")},
      {"NameEndsWithDash", api + kind + "metadata: {name: job-}\n" + rest,
       At(3,
          "metadata.name: must be lower-case letters, digits and '-', begin with a letter and not "
          "end with '-', is 'job-'")},
      {"NameTooLong", api + kind + "metadata: {name: " + std::string(50, 'a') + "}\n" + rest,
       At(3,
          "metadata.name: must be at most 49 characters long (pods are named after it), has "
          "50")},
      {"MetadataIsText", api + kind + "metadata: job\n" + rest,
       At(3, "metadata.name: is missing: give the job a name") + "\n" +
           At(3, "metadata: must be a mapping, is 'job'")},
      {"NoSpec", api + kind + "metadata: {name: job}\n",
       "job.yaml: spec: is missing: it says what to train"},
      {"SpecIsAList", api + kind + "metadata: {name: job}\nspec: [1]\n",
       At(4, "spec: must be a mapping, is a list")},
  };
}

std::vector<BadManifest> UnknownFields() {
  return {
      {"UnknownAtTheTop", Train("") + "specs: {}\n",
       At(6, "specs: unknown field (did you mean 'spec'?)")},
      {"UnknownInSpec", Train("  replica: 2\n"),
       At(6, "spec.replica: unknown field (did you mean 'replicas'?)")},
      {"UnknownCase", Train("  gpusperreplica: 2\n"),
       At(6, "spec.gpusperreplica: unknown field (did you mean 'gpusPerReplica'?)")},
      {"UnknownLikeNothing", Train("  colour: red\n"), At(6, "spec.colour: unknown field")},
      {"UnknownDeep", Train("  recovery:\n    maxRestart: 2\n"),
       At(7, "spec.recovery.maxRestart: unknown field (did you mean 'maxRestarts'?)")},
      {"UnknownDeeper", Train("  recovery:\n    backoff:\n      initialSecond: 2\n"),
       At(8,
          "spec.recovery.backoff.initialSecond: unknown field (did you mean "
          "'initialSeconds'?)")},
      {"UnknownInTrainFrom", Spec("  trainFrom: {configMapRef: {name: a, key: b}}\n"),
       At(5, "spec.trainFrom: needs configMapKeyRef") + "\n" +
           At(5, "spec.trainFrom.configMapRef: unknown field (did you mean 'configMapKeyRef'?)")},
      {"UnknownInEnv", Train("  env:\n  - {name: A, valu: x}\n"),
       At(7, "spec.env[0].valu: unknown field (did you mean 'value'?)")},
  };
}

std::vector<BadManifest> Types() {
  return {
      {"TextForInteger", Train("  replicas: four\n"),
       At(6, "spec.replicas: must be a whole number, is 'four'")},
      {"QuotedInteger", Train("  replicas: \"4\"\n"),
       At(6, "spec.replicas: must be a whole number, is '4'")},
      {"FractionForInteger", Train("  replicas: 1.5\n"),
       At(6, "spec.replicas: must be a whole number, is 1.5")},
      {"HugeInteger", Train("  replicas: 99999999999999999999\n"),
       At(6, "spec.replicas: must be a whole number, is 1e+20")},
      {"TextForBool", Train("  suspend: yes\n"),
       At(6, "spec.suspend: must be true or false, is 'yes'")},
      {"NumberForText", Train("  image: 12\n"),
       At(6, "spec.image: must be text (quote it), is 12")},
      {"ListForText", Train("  image: [a]\n"), At(6, "spec.image: must be text, is a list")},
      {"TextForMapping", Train("  elastic: on\n"),
       At(6, "spec.elastic: must be a mapping, is 'on'")},
      {"TextForFreeMapping", Train("  template: pod.yaml\n"),
       At(6, "spec.template: must be a mapping, is 'pod.yaml'")},
      {"ListForResources", Train("  resources: [4]\n"),
       At(6, "spec.resources: must be a mapping, is a list")},
      {"TextForList", Spec("  command: python train.py\n"),
       At(5, "spec.command: must be a list, is 'python train.py'")},
      {"NumberInTextList", Spec("  command:\n  - sleep\n  - 5\n"),
       At(7, "spec.command[1]: must be text (quote it), is 5")},
      {"FractionInIntegerList", Train("  recovery: {fatalExitCodes: [2, 3.5]}\n"),
       At(6, "spec.recovery.fatalExitCodes[1]: must be a whole number, is 3.5")},
      {"TextForAuto", Train("  health: {stepTimeoutSeconds: automatic}\n"),
       At(6, "spec.health.stepTimeoutSeconds: must be a whole number or auto, is 'automatic'")},
      {"TextForNumber", Train("  health: {heartbeatTimeoutSeconds: 1s}\n"),
       At(6, "spec.health.heartbeatTimeoutSeconds: must be a number, is '1s'")},
      {"EnvIsAMapping", Train("  env: {A: x}\n"), At(6, "spec.env: must be a list, is a mapping")},
      {"EnvEntryIsText", Train("  env: [A=x]\n"),
       At(6, "spec.env[0]: must be a mapping, is 'A=x'")},
      {"EnvWithoutName", Train("  env:\n  - value: x\n"), At(7, "spec.env[0]: needs name")},
      {"EnvWithNumber", Train("  env:\n  - {name: OMP_NUM_THREADS, value: 4}\n"),
       At(7, "spec.env[0].value: must be text (quote it), is 4")},
      {"EnvWithoutValue", Train("  env:\n  - {name: A}\n"),
       At(7, "spec.env[0]: needs either value or valueFrom")},
      {"TrainIsText", Spec("  train: sft.yaml\n"),
       At(5, "spec.train: must be a mapping, is 'sft.yaml'")},
  };
}

std::vector<BadManifest> Ranges() {
  return {
      {"NoReplicas", Train("  replicas: 0\n"), At(6, "spec.replicas: must be at least 1, is 0")},
      {"NegativeReplicas", Train("  replicas: -4\n"),
       At(6, "spec.replicas: must be at least 1, is -4")},
      {"TooManyReplicas", Train("  replicas: 5000\n"),
       At(6, "spec.replicas: must be at most 4096, is 5000")},
      {"PortTooLarge", Train("  rendezvous: {port: 70000}\n"),
       At(6, "spec.rendezvous.port: must be at most 65535, is 70000")},
      {"HeartbeatTooShort", Train("  health: {heartbeatTimeoutSeconds: 0.01}\n"),
       At(6, "spec.health.heartbeatTimeoutSeconds: must be at least 0.1, is 0.01")},
      {"ExitCodeTooLarge", Train("  recovery: {fatalExitCodes: [2, 256]}\n"),
       At(6, "spec.recovery.fatalExitCodes[1]: must be at most 255, is 256")},
      {"ExitCodeOfSuccess", Train("  recovery: {fatalExitCodes: [0]}\n"),
       At(6, "spec.recovery.fatalExitCodes[0]: must be at least 1, is 0")},
      {"BadOnShrink", Train("  elastic: {onShrink: Wait}\n"),
       At(6, "spec.elastic.onShrink: must be one of KeepGlobalBatch, ScaleBatch, is 'Wait'")},
      {"BadCleanPodPolicy", Train("  cleanPodPolicy: running\n"),
       At(6, "spec.cleanPodPolicy: must be one of None, Running, All, is 'running'")},
  };
}

std::vector<BadManifest> Combinations() {
  return {
      {"NothingToRun", Spec("  replicas: 2\n"), At(4, kNoTrain)},
      {"EmptyTrain", Spec("  train:\n"), At(5, kNoTrain)},
      {"EmptyCommand", Spec("  command: []\n"), At(4, kNoTrain)},
      {"TrainTwice", Train("  trainFrom: {configMapKeyRef: {name: a, key: b}}\n"),
       At(6, "spec.trainFrom: and spec.train are both given: keep one")},
      {"TrainFromWithoutKey", Spec("  trainFrom: {configMapKeyRef: {name: a}}\n"),
       At(5, "spec.trainFrom.configMapKeyRef: needs key")},
      {"TrainFromNothing", Spec("  trainFrom: {}\n"),
       At(5, "spec.trainFrom: needs configMapKeyRef")},
      {"ArgsWithoutCommand", Train("  args: [x]\n"),
       At(6, "spec.args: needs spec.command: the program that they are for")},
      {"MinReplicasTooLarge", Train("  replicas: 2\n  elastic: {minReplicas: 3}\n"),
       At(7, "spec.elastic.minReplicas: must be at most spec.replicas (2), is 3")},
      {"MoreProcessesThanGpus", Train("  gpusPerReplica: 2\n  processesPerReplica: 4\n"),
       At(7, "spec.processesPerReplica: must be at most spec.gpusPerReplica (2), is 4")},
      {"ClaimTwice", Train("  checkpoint: {claimName: a, claimTemplate: {storage: 1Gi}}\n"),
       At(6, "spec.checkpoint.claimTemplate: and claimName are both given: keep one")},
      {"RelativeCheckpointPath", Train("  checkpoint:\n    path: out/run1\n"),
       At(7,
          "spec.checkpoint.path: must be an absolute path (not / itself, no ':'), is 'out/run1'")},
      {"BackoffUpsideDown", Train("  recovery: {backoff: {initialSeconds: 10, maxSeconds: 5}}\n"),
       At(6, "spec.recovery.backoff.initialSeconds: must be at most maxSeconds (5), is 10")},
      {"SeveralProblems",
       "apiVersion: v1\nkind: TrainingJob\nmetadata: {name: Job}\nspec:\n  replicas: none\n"
       "  trains: {}\n  rendezvous: {port: 0}\n",
       At(1, "apiVersion: must be everstep.dev/v1alpha1, is \"v1\"") + "\n" +
           At(3,
              "metadata.name: must be lower-case letters, digits and '-', begin with a letter and "
              "not "
              "end with '-', is 'Job'") +
           "\n" + At(5, "spec.replicas: must be a whole number, is 'none'") + "\n" +
           At(6, "spec.trains: unknown field (did you mean 'train'?)") + "\n" +
           At(7, "spec.rendezvous.port: must be at least 1, is 0")},
      {"SeveralCombinations",
       Train("  replicas: 2\n  elastic: {minReplicas: 3}\n"
             "  args: [x]\n"),
       At(8, "spec.args: needs spec.command: the program that they are for") + "\n" +
           At(7, "spec.elastic.minReplicas: must be at most spec.replicas (2), is 3")},
  };
}

std::vector<BadManifest> All() {
  std::vector<BadManifest> all;
  for (const auto& part :
       {Documents(), Identities(), UnknownFields(), Types(), Ranges(), Combinations()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

class BadManifestTest : public testing::TestWithParam<BadManifest> {};

TEST_P(BadManifestTest, IsToldInTheseWords) {
  const auto document = ParseDocument(GetParam().text, "job.yaml");
  std::string error;
  if (!document) {
    error = document.error().message;
  } else if (const auto job = ParseTrainingJob(*document); !job) {
    error = job.error().message;
  }
  EXPECT_EQ(error, GetParam().error) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(All, BadManifestTest, testing::ValuesIn(All()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace everstep
