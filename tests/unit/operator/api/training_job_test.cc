#include "operator/api/training_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "operator/api/names.h"
#include "operator/api/schema.h"

namespace everstep {
namespace {

using testing::ElementsAre;

TrainingJob Parse(const std::string& text) {
  const auto document = ParseDocument(text, "job.yaml");
  EXPECT_TRUE(document.has_value()) << document.error().message;
  if (!document) return {};
  auto job = ParseTrainingJob(*document);
  EXPECT_TRUE(job.has_value()) << job.error().message;
  return job ? *job : TrainingJob{};
}

constexpr char kLeast[] =
    "apiVersion: everstep.dev/v1alpha1\n"
    "kind: TrainingJob\n"
    "metadata: {name: qwen-sft}\n"
    "spec:\n"
    "  train: {stage: sft}\n";

TEST(TrainingJobTest, TheLeastManifestHasEveryDefault) {
  const TrainingJob job = Parse(kLeast);
  EXPECT_EQ(job.name, "qwen-sft");
  EXPECT_EQ(job.generation, 1);
  const TrainingJobSpec& spec = job.spec;
  EXPECT_EQ(spec.replicas, 1);
  EXPECT_EQ(spec.processes_per_replica, 1);
  EXPECT_EQ(spec.gpus_per_replica, 0);
  EXPECT_FALSE(spec.threads_per_process.has_value());
  EXPECT_EQ(spec.elastic.min_replicas, 1);
  EXPECT_EQ(spec.elastic.on_shrink, "KeepGlobalBatch");
  EXPECT_EQ(spec.elastic.lr_scaling, "None");
  EXPECT_EQ(spec.spares, 0);
  EXPECT_EQ(spec.image, "");
  EXPECT_TRUE(spec.command.empty());
  EXPECT_TRUE(spec.args.empty());
  EXPECT_TRUE(spec.env.empty());
  EXPECT_TRUE(spec.resources.is_null());
  EXPECT_TRUE(spec.pod_template.is_null());
  EXPECT_EQ(DumpJson(spec.train), R"({"stage":"sft"})");
  EXPECT_EQ(spec.train_config_map, "");
  EXPECT_EQ(spec.rendezvous.port, 29500);
  EXPECT_EQ(spec.rendezvous.network_interface, "auto");
  EXPECT_FALSE(spec.rendezvous.host_network);
  EXPECT_EQ(spec.rendezvous.timeout_seconds, 600);
  EXPECT_EQ(spec.checkpoint.claim_name, "");
  EXPECT_TRUE(spec.checkpoint.claim_template.is_null());
  EXPECT_EQ(spec.checkpoint.path, names::kDefaultCheckpointPath);
  EXPECT_FALSE(spec.checkpoint.keep_last.has_value());
  EXPECT_FALSE(spec.checkpoint.milestone_steps.has_value());
  EXPECT_FALSE(spec.checkpoint.interval_steps.has_value());
  EXPECT_EQ(spec.recovery.max_restarts, 10);
  EXPECT_EQ(spec.recovery.window_seconds, 21600);
  EXPECT_EQ(spec.recovery.max_no_progress, 3);
  EXPECT_EQ(spec.recovery.in_place_before_recreate, 3);
  EXPECT_EQ(spec.recovery.backoff_initial_seconds, 1);
  EXPECT_EQ(spec.recovery.backoff_max_seconds, 300);
  EXPECT_THAT(spec.recovery.fatal_exit_codes, ElementsAre(2, 3, 78));
  EXPECT_EQ(spec.recovery.exclude_node_after, 2);
  EXPECT_EQ(spec.health.heartbeat_timeout_seconds, 1);
  EXPECT_FALSE(spec.health.step_timeout_seconds.has_value());
  EXPECT_EQ(spec.health.startup_deadline_seconds, 1800);
  EXPECT_EQ(spec.health.stuck_terminating_seconds, 60);
  EXPECT_FALSE(spec.suspend);
  EXPECT_FALSE(spec.active_deadline_seconds.has_value());
  EXPECT_FALSE(spec.ttl_seconds_after_finished.has_value());
  EXPECT_EQ(spec.clean_pod_policy, "Running");
}

constexpr char kFull[] = R"(
apiVersion: everstep.dev/v1alpha1
kind: TrainingJob
metadata: {name: full, labels: {team: a}, annotations: {note: b}}
spec:
  replicas: 4
  processesPerReplica: 2
  gpusPerReplica: 8
  threadsPerProcess: 3
  elastic: {minReplicas: 2, onShrink: ScaleBatch, lrScaling: Sqrt}
  spares: 1
  image: registry.example/train:1
  command: [python, train.py]
  args: ["--epochs", "3"]
  env: [{name: A, value: "1"}, {name: B, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
  resources: {limits: {cpu: "4"}}
  template:
    metadata: {labels: {a: b}, annotations: {c: d}}
    spec: {nodeSelector: {disk: ssd}, nodeName: node-1, restartPolicy: Never, hostPID: true}
  trainFrom: {configMapKeyRef: {name: files, key: sft.yaml}}
  rendezvous: {port: 1234, networkInterface: eth1, hostNetwork: true, timeoutSeconds: 60}
  checkpoint:
    claimTemplate: {storage: 100Gi, storageClassName: fast, accessModes: [ReadWriteMany]}
    path: /data/checkpoints
    keepLast: 5
    milestoneSteps: 1000
    intervalSteps: 50
  recovery:
    maxRestarts: 20
    windowSeconds: 60
    maxNoProgress: 5
    inPlaceBeforeRecreate: 1
    backoff: {initialSeconds: 0.5, maxSeconds: 10}
    fatalExitCodes: [2, 44]
    excludeNodeAfter: 4
  health:
    heartbeatTimeoutSeconds: 2.5
    stepTimeoutSeconds: 90
    startupDeadlineSeconds: 100
    stuckTerminatingSeconds: 30
  suspend: true
  queueName: gold
  managedBy: kueue.x-k8s.io/multikueue
  scheduling: {gang: Volcano, priorityClassName: high, topologyKey: zone}
  activeDeadlineSeconds: 3600
  ttlSecondsAfterFinished: 0
  cleanPodPolicy: All
  networkPolicy: Isolated
status: {phase: Running}
)";

TEST(TrainingJobTest, EveryFieldIsRead) {
  const TrainingJobSpec spec = Parse(kFull).spec;
  EXPECT_EQ(spec.replicas, 4);
  EXPECT_EQ(spec.processes_per_replica, 2);
  EXPECT_EQ(spec.world_size(), 8);
  EXPECT_EQ(spec.gpus_per_replica, 8);
  EXPECT_EQ(spec.threads_per_process, 3);
  EXPECT_EQ(spec.elastic.min_replicas, 2);
  EXPECT_EQ(spec.elastic.on_shrink, "ScaleBatch");
  EXPECT_EQ(spec.elastic.lr_scaling, "Sqrt");
  EXPECT_EQ(spec.spares, 1);
  EXPECT_EQ(spec.image, "registry.example/train:1");
  EXPECT_THAT(spec.command, ElementsAre("python", "train.py"));
  EXPECT_THAT(spec.args, ElementsAre("--epochs", "3"));
  EXPECT_EQ(spec.env.size(), 2u);
  EXPECT_EQ(spec.resources["limits"]["cpu"], "4");
  EXPECT_EQ(spec.pod_template["spec"]["nodeSelector"]["disk"], "ssd");
  EXPECT_TRUE(spec.train.is_null());
  EXPECT_EQ(spec.train_config_map, "files");
  EXPECT_EQ(spec.train_config_map_key, "sft.yaml");
  EXPECT_EQ(spec.rendezvous.port, 1234);
  EXPECT_EQ(spec.rendezvous.network_interface, "eth1");
  EXPECT_TRUE(spec.rendezvous.host_network);
  EXPECT_EQ(spec.rendezvous.timeout_seconds, 60);
  EXPECT_EQ(spec.checkpoint.claim_template["accessModes"][0], "ReadWriteMany");
  EXPECT_EQ(spec.checkpoint.path, "/data/checkpoints");
  EXPECT_EQ(spec.checkpoint.keep_last, 5);
  EXPECT_EQ(spec.checkpoint.milestone_steps, 1000);
  EXPECT_EQ(spec.checkpoint.interval_steps, 50);
  EXPECT_EQ(spec.recovery.max_restarts, 20);
  EXPECT_EQ(spec.recovery.window_seconds, 60);
  EXPECT_EQ(spec.recovery.max_no_progress, 5);
  EXPECT_EQ(spec.recovery.in_place_before_recreate, 1);
  EXPECT_EQ(spec.recovery.backoff_initial_seconds, 0.5);
  EXPECT_EQ(spec.recovery.backoff_max_seconds, 10);
  EXPECT_THAT(spec.recovery.fatal_exit_codes, ElementsAre(2, 44));
  EXPECT_EQ(spec.recovery.exclude_node_after, 4);
  EXPECT_EQ(spec.health.heartbeat_timeout_seconds, 2.5);
  EXPECT_EQ(spec.health.step_timeout_seconds, 90);
  EXPECT_EQ(spec.health.startup_deadline_seconds, 100);
  EXPECT_EQ(spec.health.stuck_terminating_seconds, 30);
  EXPECT_TRUE(spec.suspend);
  EXPECT_EQ(spec.active_deadline_seconds, 3600);
  EXPECT_EQ(spec.ttl_seconds_after_finished, 0);
  EXPECT_EQ(spec.clean_pod_policy, "All");
}

// The full manifest above names every field there is: one that is added has to appear in it.
TEST(TrainingJobTest, TheFullManifestNamesEveryField) {
  const auto document = ParseDocument(kFull, "job.yaml");
  ASSERT_TRUE(document.has_value());
  std::set<std::string> lines;  // without the entries' indices
  for (const auto& [path, line] : document->lines) {
    lines.insert(std::regex_replace(path, std::regex(R"(\[\d+\])"), ""));
  }
  for (const FieldRule& field : TrainingJobFields()) {
    const std::string path(field.path);
    if (path == "spec.train" || path == "spec.checkpoint.claimName")
      continue;  // excluded by others
    EXPECT_TRUE(lines.contains(path)) << path;
  }
}

TEST(TrainingJobTest, JsonIsTheSame) {
  const auto yaml = ParseDocument(kFull, "job.yaml");
  ASSERT_TRUE(yaml.has_value());
  const auto json = ParseDocument(DumpJson(yaml->value, 2), "job.json");
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(json->value, yaml->value);
  EXPECT_TRUE(ParseTrainingJob(*json).has_value());
}

TEST(TrainingJobTest, AProcessForEachGpuUnlessSaidOtherwise) {
  const std::string manifest = std::string(kLeast) + "  gpusPerReplica: 8\n";
  EXPECT_EQ(Parse(manifest).spec.processes_per_replica, 8);
  EXPECT_EQ(Parse(manifest + "  processesPerReplica: 2\n").spec.processes_per_replica, 2);
}

TEST(TrainingJobTest, NullIsAsGoodAsAbsent) {
  const TrainingJobSpec spec =
      Parse(std::string(kLeast) + "  replicas:\n  env: ~\n  elastic: null\n").spec;
  EXPECT_EQ(spec.replicas, 1);
  EXPECT_EQ(spec.elastic.min_replicas, 1);
}

TEST(TrainingJobTest, AutoIsAsGoodAsAbsent) {
  const TrainingJobSpec spec =
      Parse(std::string(kLeast) + "  health: {stepTimeoutSeconds: auto}\n").spec;
  EXPECT_FALSE(spec.health.step_timeout_seconds.has_value());
}

TEST(TrainingJobTest, AProgramOfOnesOwnNeedsNoTrainingFile) {
  const TrainingJob job = Parse(
      "apiVersion: everstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: own}\n"
      "spec: {command: [torchrun, train.py]}\n");
  EXPECT_THAT(job.spec.command, ElementsAre("torchrun", "train.py"));
}

TEST(TrainingJobTest, AnObjectFromTheStoreBringsItsIdentity) {
  auto object = ParseDocument(kLeast, "job.yaml")->value;
  object["metadata"]["uid"] = "1234";
  object["metadata"]["generation"] = 5;
  const auto job = TrainingJobFromJson(object);
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->uid, "1234");
  EXPECT_EQ(job->generation, 5);
  EXPECT_EQ(job->spec.train["stage"], "sft");
}

TEST(TrainingJobTest, TheLongestNameStillMakesPodNamesThatAreHostNames) {
  const std::string name(names::kMaxJobNameLength, 'a');
  EXPECT_LE(names::Pod(name, 4095, 99'999'999).size(), 63u);
}

}  // namespace
}  // namespace everstep
