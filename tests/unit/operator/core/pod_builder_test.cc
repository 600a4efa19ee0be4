#include "operator/core/pod_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/api/document.h"
#include "operator/api/names.h"

namespace everstep {
namespace {

using testing::Contains;
using testing::ElementsAre;

TrainingJob Job(const std::string& spec) {
  const auto document = ParseDocument(
      "apiVersion: everstep.dev/v1alpha1\nkind: TrainingJob\n"
      "metadata: {name: qwen, uid: u-1}\nspec:\n" +
          spec,
      "job.yaml");
  EXPECT_TRUE(document.has_value()) << document.error().message;
  const auto job = TrainingJobFromJson(document->value);
  EXPECT_TRUE(job.has_value()) << job.error().message;
  return job ? *job : TrainingJob{};
}

const PodContext kContext{.rendezvous = "10.0.0.1:4000",
                          .token = "secret",
                          .threads_per_process = 3,
                          .first_start = true};

// The value of an environment variable; the last one of a name counts. "-": there is none.
std::string Env(const OrderedJson& container, const std::string& name) {
  std::string value = "-";
  for (const OrderedJson& entry : container["env"]) {
    if (entry["name"] == name) value = entry.value("value", "(valueFrom)");
  }
  return value;
}

std::vector<std::string> NamesOf(const OrderedJson& list) {
  std::vector<std::string> found;
  for (const OrderedJson& entry : list) found.push_back(entry["name"]);
  return found;
}

TEST(PodBuilderTest, APodInFull) {
  const TrainingJob job =
      Job("  replicas: 4\n  processesPerReplica: 2\n  gpusPerReplica: 2\n"
          "  image: registry.example/everstep:1\n"
          "  train: {stage: sft}\n"
          "  checkpoint: {claimName: shared, path: /ckpt}\n"
          "  env: [{name: HF_HOME, value: /ckpt/hf}]\n");
  const char* expected = R"({
  "apiVersion": "v1",
  "kind": "Pod",
  "metadata": {
    "name": "qwen-2-5",
    "labels": {
      "everstep.dev/job": "qwen",
      "everstep.dev/replica": "2",
      "everstep.dev/incarnation": "5"
    },
    "ownerReferences": [
      {
        "apiVersion": "everstep.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": "qwen",
        "uid": "u-1",
        "controller": true
      }
    ]
  },
  "spec": {
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 35,
    "hostname": "qwen-2",
    "subdomain": "qwen",
    "volumes": [
      {"name": "checkpoint", "persistentVolumeClaim": {"claimName": "shared"}},
      {"name": "train", "configMap": {"name": "qwen-train"}},
      {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
    ],
    "containers": [
      {
        "name": "worker",
        "command": ["everstep-supervisor", "--"],
        "image": "registry.example/everstep:1",
        "env": [
          {"name": "MASTER_ADDR", "value": "qwen-0.qwen"},
          {"name": "MASTER_PORT", "value": "29500"},
          {"name": "NODE_RANK", "value": "2"},
          {"name": "NNODES", "value": "4"},
          {"name": "NPROC_PER_NODE", "value": "2"},
          {"name": "WORLD_SIZE", "value": "8"},
          {"name": "LOCAL_WORLD_SIZE", "value": "2"},
          {"name": "RANK", "value": "4"},
          {"name": "FORCE_TORCHRUN", "value": "1"},
          {"name": "EVERSTEP_JOB", "value": "qwen"},
          {"name": "EVERSTEP_RUN", "value": "u-1"},
          {"name": "EVERSTEP_POD", "value": "qwen-2-5"},
          {"name": "EVERSTEP_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
          {"name": "EVERSTEP_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
          {"name": "EVERSTEP_REPLICA", "value": "2"},
          {"name": "EVERSTEP_INCARNATION", "value": "5"},
          {"name": "EVERSTEP_PROCESSES", "value": "2"},
          {"name": "EVERSTEP_RENDEZVOUS", "value": "10.0.0.1:4000"},
          {"name": "EVERSTEP_TOKEN", "value": "secret"},
          {"name": "EVERSTEP_THREADS", "value": "3"},
          {"name": "EVERSTEP_CHECKPOINT_PATH", "value": "/ckpt"},
          {"name": "EVERSTEP_TRAIN_FILE", "value": "/etc/everstep/train.yaml"},
          {"name": "EVERSTEP_FIRST_START", "value": "1"},
          {"name": "EVERSTEP_STOP_GRACE_SECONDS", "value": "30"},
          {"name": "HF_HOME", "value": "/ckpt/hf"}
        ],
        "volumeMounts": [
          {"name": "checkpoint", "mountPath": "/ckpt"},
          {"name": "train", "mountPath": "/etc/everstep", "readOnly": true},
          {"name": "shared-memory", "mountPath": "/dev/shm"}
        ],
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}
      }
    ],
    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
    "automountServiceAccountToken": false,
    "enableServiceLinks": false,
    "tolerations": [
      {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 30
      },
      {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 30
      }
    ]
  }
})";
  const OrderedJson pod = BuildPod(job, 2, 5, kContext);
  EXPECT_EQ(DumpJson(pod, 2), DumpJson(*ParseOrderedJson(expected, "expected"), 2));
}

TEST(PodBuilderTest, OnlyAJobWithoutStateStartsForTheFirstTime) {
  const TrainingJob job = Job("  train: {stage: sft}\n");
  PodContext later = kContext;
  later.first_start = false;
  EXPECT_EQ(Env(BuildPod(job, 0, 0, kContext)["spec"]["containers"][0], "EVERSTEP_FIRST_START"),
            "1");
  EXPECT_EQ(Env(BuildPod(job, 0, 0, later)["spec"]["containers"][0], "EVERSTEP_FIRST_START"), "-");
}

TEST(PodBuilderTest, TheMastersAddressIsTheSameForEveryIncarnation) {
  const TrainingJob job = Job("  replicas: 2\n  train: {stage: sft}\n");
  for (int incarnation : {0, 1, 7}) {
    const OrderedJson master = BuildPod(job, 0, incarnation, kContext);
    const OrderedJson other = BuildPod(job, 1, 0, kContext);
    const std::string host = master["spec"]["hostname"].get<std::string>() + "." +
                             master["spec"]["subdomain"].get<std::string>();
    EXPECT_EQ(Env(other["spec"]["containers"][0], "MASTER_ADDR"), host);
    EXPECT_EQ(Env(master["spec"]["containers"][0], "MASTER_ADDR"), host);
  }
}

TEST(PodBuilderTest, EverythingIsInTheJobsNamespace) {
  TrainingJob job = Job("  train: {stage: sft}\n");
  job.namespace_name = "team";
  const OrderedJson pod = BuildPod(job, 0, 0, kContext);
  for (const OrderedJson& object : {pod, BuildTrainConfigMap(job), BuildService(job)}) {
    EXPECT_EQ(object["metadata"]["namespace"], "team");
    EXPECT_EQ(object["metadata"]["labels"][names::kJobLabel], job.name);
  }
  EXPECT_EQ(Env(pod["spec"]["containers"][0], "EVERSTEP_JOB"), "team/" + job.name);
}

TEST(PodBuilderTest, WithCertificatesAPodShowsItsAccountsToken) {
  const TrainingJob job = Job("  train: {stage: sft}\n");
  PodContext context = kContext;
  context.rendezvous_ca = "PEM";
  context.rendezvous_name = "rendezvous.everstep.svc";
  const OrderedJson pod = BuildPod(job, 0, 0, context);
  const OrderedJson& worker = pod["spec"]["containers"][0];
  EXPECT_EQ(Env(worker, "EVERSTEP_TOKEN"), "secret");
  EXPECT_EQ(Env(worker, "EVERSTEP_RENDEZVOUS_CA"), "PEM");
  EXPECT_EQ(Env(worker, "EVERSTEP_RENDEZVOUS_NAME"), "rendezvous.everstep.svc");
  EXPECT_EQ(Env(worker, "EVERSTEP_TOKEN_FILE"), "/var/run/secrets/everstep.dev/token");
  EXPECT_THAT(NamesOf(worker["volumeMounts"]), Contains("rendezvous-token"));
  const OrderedJson* volume = nullptr;
  for (const OrderedJson& entry : pod["spec"]["volumes"]) {
    if (entry["name"] == "rendezvous-token") volume = &entry;
  }
  ASSERT_NE(volume, nullptr);
  const OrderedJson& token = (*volume)["projected"]["sources"][0]["serviceAccountToken"];
  EXPECT_EQ(token["audience"], "everstep");
  EXPECT_EQ(token["path"], "token");
}

TEST(PodBuilderTest, TheSupervisorIsBroughtIntoAnotherProgramsImage) {
  PodContext context = kContext;
  context.worker_image = "everstep-worker:1";
  context.supervisor_image = "everstep-operator:1";
  const OrderedJson own = BuildPod(Job("  train: {stage: sft}\n"), 0, 0, context);
  EXPECT_FALSE(own["spec"].contains("initContainers"));
  EXPECT_EQ(own["spec"]["containers"][0]["image"], "everstep-worker:1");
  EXPECT_EQ(own["spec"]["containers"][0]["command"][0], "everstep-supervisor");

  const OrderedJson other =
      BuildPod(Job("  image: mine:1\n  command: [torchrun, a.py]\n"), 0, 0, context);
  const OrderedJson& worker = other["spec"]["containers"][0];
  ASSERT_EQ(other["spec"]["initContainers"].size(), 1u);
  const OrderedJson& bring = other["spec"]["initContainers"][0];
  EXPECT_EQ(bring["image"], "everstep-operator:1");
  EXPECT_EQ(worker["image"], "mine:1");
  // What is installed is what is started, from a volume that both mount.
  EXPECT_EQ(bring["command"].back(), worker["command"][0]);
  EXPECT_THAT(NamesOf(worker["volumeMounts"]), Contains("programs"));
  EXPECT_THAT(NamesOf(bring["volumeMounts"]), ElementsAre("programs"));
  EXPECT_THAT(NamesOf(other["spec"]["volumes"]), Contains("programs"));
}

TEST(PodBuilderTest, NodesWithFaultsAreLeftAlone) {
  const TrainingJob job = Job(R"(
  train: {stage: sft}
  template:
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions: [{key: gpu, operator: Exists}]
            - matchExpressions: [{key: tpu, operator: Exists}]
)");
  PodContext context = kContext;
  context.nodes = {.excluded = {"a"}, .avoided = {"b", "c"}};
  const OrderedJson affinity = BuildPod(job, 0, 0, context)["spec"]["affinity"]["nodeAffinity"];
  const OrderedJson& terms =
      affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  // Either of the user's terms may fit; neither lets the excluded node in.
  ASSERT_EQ(terms.size(), 2u);
  for (const OrderedJson& term : terms) {
    ASSERT_EQ(term["matchExpressions"].size(), 2u);
    EXPECT_EQ(DumpJson(term["matchExpressions"][1]),
              R"({"key":"kubernetes.io/hostname","operator":"NotIn","values":["a"]})");
  }
  const OrderedJson& wish = affinity["preferredDuringSchedulingIgnoredDuringExecution"][0];
  EXPECT_EQ(DumpJson(wish["preference"]["matchExpressions"][0]["values"]), R"(["b","c"])");
  EXPECT_FALSE(BuildPod(Job("  train: {}\n"), 0, 0, kContext)["spec"].contains("affinity"));
}

TEST(PodBuilderTest, TheSupervisorEndsItsProcessesBeforeThePodIsEnded) {
  const auto grace = [](const std::string& seconds) {
    const OrderedJson pod = BuildPod(
        Job("  train: {stage: sft}\n  template: {spec: {terminationGracePeriodSeconds: " + seconds +
            "}}\n"),
        0, 0, kContext);
    EXPECT_EQ(DumpJson(pod["spec"]["terminationGracePeriodSeconds"]), seconds);
    return Env(pod["spec"]["containers"][0], "EVERSTEP_STOP_GRACE_SECONDS");
  };
  EXPECT_EQ(grace("120"), "115");
  EXPECT_EQ(grace("3"), "1");
}

TEST(PodBuilderTest, WishesForPlacement) {
  const OrderedJson pod = BuildPod(Job(R"(
  train: {stage: sft}
  rendezvous: {hostNetwork: true}
  scheduling: {priorityClassName: high, topologyKey: rack}
  template: {spec: {tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists}]}}
)"),
                                   0, 0, kContext);
  const OrderedJson& spec = pod["spec"];
  EXPECT_EQ(spec["hostNetwork"], true);
  EXPECT_EQ(spec["dnsPolicy"], "ClusterFirstWithHostNet");
  EXPECT_EQ(spec["priorityClassName"], "high");
  const OrderedJson& near =
      spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
  EXPECT_EQ(near["podAffinityTerm"]["topologyKey"], "rack");
  // The user's own toleration stands.
  ASSERT_EQ(spec["tolerations"].size(), 2u);
  EXPECT_FALSE(spec["tolerations"][0].contains("tolerationSeconds"));
}

TEST(PodBuilderTest, OnlyTheJobsPodsMayReachEachOther) {
  const OrderedJson policy = BuildNetworkPolicy(Job("  train: {stage: sft}\n"));
  EXPECT_EQ(DumpJson(policy["spec"]),
            R"({"podSelector":{"matchLabels":{"everstep.dev/job":"qwen"}},)"
            R"("policyTypes":["Ingress"],"ingress":[{"from":[{"podSelector":)"
            R"({"matchLabels":{"everstep.dev/job":"qwen"}}}]}]})");
}

TEST(PodBuilderTest, AClaimOutlivesItsJob) {
  const OrderedJson claim =
      BuildClaim(Job("  train: {stage: sft}\n"
                     "  checkpoint: {claimTemplate: {storage: 5Gi, storageClassName: fast}}\n"));
  EXPECT_EQ(claim["metadata"]["name"], "qwen");
  EXPECT_FALSE(claim["metadata"].contains("ownerReferences"));
  EXPECT_EQ(DumpJson(claim["spec"]),
            R"({"accessModes":["ReadWriteMany"],"resources":{"requests":{"storage":"5Gi"}},)"
            R"("storageClassName":"fast"})");
}

TEST(PodBuilderTest, WishesForCheckpointsArePassedOn) {
  const auto container = [](const std::string& fields) {
    const TrainingJob job =
        Job("  train: {stage: sft}\n  checkpoint: {claimName: c" + fields + "}\n");
    return BuildPod(job, 0, 0, kContext)["spec"]["containers"][0];
  };
  EXPECT_EQ(Env(container(""), "EVERSTEP_CHECKPOINT_KEEP_LAST"), "-");
  EXPECT_EQ(Env(container(", keepLast: 3"), "EVERSTEP_CHECKPOINT_KEEP_LAST"), "3");
  EXPECT_EQ(Env(container(", intervalSteps: 50"), "EVERSTEP_CHECKPOINT_INTERVAL_STEPS"), "50");
  EXPECT_EQ(Env(container(", milestoneSteps: 500"), "EVERSTEP_CHECKPOINT_MILESTONE_STEPS"), "500");
}

TEST(PodBuilderTest, ANamedInterfaceIsPassedOn) {
  const TrainingJob job = Job("  train: {stage: sft}\n  rendezvous: {networkInterface: eth1}\n");
  const OrderedJson container = BuildPod(job, 0, 0, kContext)["spec"]["containers"][0];
  EXPECT_EQ(Env(container, "NCCL_SOCKET_IFNAME"), "eth1");
  EXPECT_EQ(Env(container, "GLOO_SOCKET_IFNAME"), "eth1");
}

TEST(PodBuilderTest, AProgramOfOnesOwnComesAfterTheSupervisor) {
  const TrainingJob job = Job("  command: [python, train.py]\n  args: [--fast]\n");
  const OrderedJson pod = BuildPod(job, 0, 0, kContext);
  const OrderedJson& container = pod["spec"]["containers"][0];
  EXPECT_EQ(DumpJson(container["command"]),
            R"(["everstep-supervisor","--","python","train.py","--fast"])");
  EXPECT_EQ(Env(container, "EVERSTEP_TRAIN_FILE"), "-");
  EXPECT_THAT(NamesOf(container["volumeMounts"]), ElementsAre("checkpoint", "shared-memory"));
  EXPECT_THAT(NamesOf(pod["spec"]["volumes"]), ElementsAre("checkpoint", "shared-memory"));
  // No claim was named: the job's own.
  EXPECT_EQ(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "qwen");
}

TEST(PodBuilderTest, ATrainingFileOfAnotherConfigMapIsMountedUnderOurName) {
  const TrainingJob job = Job("  trainFrom: {configMapKeyRef: {name: files, key: sft.yaml}}\n");
  EXPECT_EQ(DumpJson(BuildPod(job, 0, 0, kContext)["spec"]["volumes"][1]),
            R"({"name":"train","configMap":{"name":"files","items":[{"key":"sft.yaml",)"
            R"("path":"train.yaml"}]}})");
}

TEST(PodBuilderTest, TheTemplateLiesUnderneath) {
  const TrainingJob job = Job(R"(
  train: {stage: sft}
  env: [{name: A, value: job}]
  template:
    metadata: {labels: {team: blue, everstep.dev/job: forged}, annotations: {note: x}}
    spec:
      nodeSelector: {disk: ssd}
      volumes: [{name: scratch, emptyDir: {}}]
      containers:
      - {name: sidecar, image: proxy}
      - name: worker
        image: mine
        env: [{name: A, value: template}, {name: B, value: template}, {name: RANK, value: "9"}]
        volumeMounts: [{name: scratch, mountPath: /scratch}]
        securityContext: {runAsUser: 7}
)");
  const OrderedJson pod = BuildPod(job, 0, 0, kContext);
  EXPECT_EQ(pod["metadata"]["name"], "qwen-0-0");
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "blue");
  EXPECT_EQ(pod["metadata"]["labels"]["everstep.dev/job"], "qwen");
  EXPECT_EQ(pod["metadata"]["annotations"]["note"], "x");
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
  EXPECT_EQ(pod["spec"]["nodeSelector"]["disk"], "ssd");
  ASSERT_EQ(pod["spec"]["containers"].size(), 2u);
  EXPECT_EQ(pod["spec"]["containers"][0]["name"], "sidecar");
  const OrderedJson& worker = pod["spec"]["containers"][1];
  EXPECT_EQ(worker["image"], "mine");
  EXPECT_EQ(worker["securityContext"]["runAsUser"], 7);
  EXPECT_EQ(worker["command"][0], "everstep-supervisor");
  EXPECT_EQ(Env(worker, "A"), "job");
  EXPECT_EQ(Env(worker, "B"), "template");
  EXPECT_EQ(Env(worker, "RANK"), "0");
  EXPECT_THAT(NamesOf(worker["volumeMounts"]),
              ElementsAre("scratch", "checkpoint", "train", "shared-memory"));
  EXPECT_THAT(NamesOf(pod["spec"]["volumes"]),
              ElementsAre("scratch", "checkpoint", "train", "shared-memory"));
}

TEST(PodBuilderTest, ResourcesAreKeptBesideTheGpus) {
  const TrainingJob job =
      Job("  train: {stage: sft}\n  gpusPerReplica: 1\n  resources: {limits: {cpu: \"4\"}}\n");
  EXPECT_EQ(DumpJson(BuildPod(job, 0, 0, kContext)["spec"]["containers"][0]["resources"]),
            R"({"limits":{"cpu":"4","nvidia.com/gpu":"1"}})");
}

TEST(PodBuilderTest, TheConfigMapHoldsTheTrainingFileUnchanged) {
  const TrainingJob job =
      Job("  train:\n    stage: sft\n    learning_rate: 1.0e-4\n    num_train_epochs: 3.0\n"
          "    bf16: true\n    seed: 42\n    template: '3'\n");
  const OrderedJson map = BuildTrainConfigMap(job);
  EXPECT_EQ(map["metadata"]["name"], "qwen-train");
  EXPECT_EQ(map["metadata"]["ownerReferences"][0]["uid"], "u-1");
  const auto back = ParseDocument(map["data"]["train.yaml"].get<std::string>(), "train.yaml");
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(DumpJson(back->value), DumpJson(job.spec.train));
}

TEST(PodBuilderTest, TheServiceGivesNamesToPodsThatAreNotReady) {
  const OrderedJson service = BuildService(Job("  train: {stage: sft}\n"));
  EXPECT_EQ(service["metadata"]["name"], "qwen");
  EXPECT_EQ(service["spec"]["clusterIP"], "None");
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true);
  EXPECT_EQ(service["spec"]["selector"]["everstep.dev/job"], "qwen");
}

}  // namespace
}  // namespace everstep
