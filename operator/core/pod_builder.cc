#include "operator/core/pod_builder.h"

#include <algorithm>

#include "operator/api/names.h"
#include "operator/core/pod_defaults.h"

namespace everstep {
namespace {

constexpr int kDefaultGraceSeconds = 35;
constexpr int kLastWordsSeconds = 5;
constexpr char kTokenDirectory[] = "/var/run/secrets/everstep.dev";
constexpr char kProgramDirectory[] = "/everstep-programs";

// Of the pod; a checkpoint has to be saved in it.
int GraceSeconds(const TrainingJob& job) {
  const OrderedJson& user = job.spec.pod_template;
  const OrderedJson spec = user.is_object() ? user.value("spec", OrderedJson()) : OrderedJson();
  return spec.is_object() ? spec.value("terminationGracePeriodSeconds", kDefaultGraceSeconds)
                          : kDefaultGraceSeconds;
}

// Our own worker's image has the supervisor; the image of another program may not.
bool BringsSupervisor(const TrainingJob& job, const PodContext& context) {
  return !job.spec.command.empty() && !context.supervisor_image.empty();
}

OrderedJson Metadata(const TrainingJob& job, const std::string& name) {
  OrderedJson metadata = {{"name", name},
                          {"labels", {{names::kJobLabel, job.name}}},
                          {"ownerReferences",
                           {{{"apiVersion", names::kApiVersion},
                             {"kind", names::kKind},
                             {"name", job.name},
                             {"uid", job.uid},
                             {"controller", true}}}}};
  if (!job.namespace_name.empty()) metadata["namespace"] = job.namespace_name;
  return metadata;
}

class Environment {
 public:
  void Set(const std::string& name, const std::string& value) {
    list_.push_back({{"name", name}, {"value", value}});
  }
  void Set(const std::string& name, int value) { Set(name, std::to_string(value)); }
  void SetGiven(const std::string& name, const std::optional<int>& value) {
    if (value) Set(name, *value);
  }
  void SetField(const std::string& name, const std::string& field) {
    list_.push_back({{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", field}}}}}});
  }
  OrderedJson list_ = OrderedJson::array();
};

// The names that torchrun, DeepSpeed and llamafactory-cli read, then our own.
OrderedJson BuildEnvironment(const TrainingJob& job, int replica, int incarnation,
                             const PodContext& context) {
  const TrainingJobSpec& spec = job.spec;
  Environment env;
  env.Set("MASTER_ADDR", names::HostName(job.name, 0) + "." + names::Service(job.name));
  env.Set("MASTER_PORT", spec.rendezvous.port);
  env.Set("NODE_RANK", replica);
  env.Set("NNODES", spec.replicas);
  env.Set("NPROC_PER_NODE", spec.processes_per_replica);
  env.Set("WORLD_SIZE", spec.world_size());
  env.Set("LOCAL_WORLD_SIZE", spec.processes_per_replica);
  env.Set("RANK", replica * spec.processes_per_replica);
  env.Set("FORCE_TORCHRUN", 1);
  if (spec.rendezvous.network_interface != "auto") {
    env.Set("NCCL_SOCKET_IFNAME", spec.rendezvous.network_interface);
    env.Set("GLOO_SOCKET_IFNAME", spec.rendezvous.network_interface);
  }
  env.Set("EVERSTEP_JOB", job.key());
  env.Set("EVERSTEP_RUN", job.uid);
  env.Set("EVERSTEP_POD", names::Pod(job.name, replica, incarnation));
  env.SetField("EVERSTEP_NODE", "spec.nodeName");
  env.SetField("EVERSTEP_POD_IP", "status.podIP");
  env.Set("EVERSTEP_REPLICA", replica);
  env.Set("EVERSTEP_INCARNATION", incarnation);
  env.Set("EVERSTEP_PROCESSES", spec.processes_per_replica);
  env.Set("EVERSTEP_RENDEZVOUS", context.rendezvous);
  // With certificates it is for the processes among themselves only.
  env.Set("EVERSTEP_TOKEN", context.token);
  if (!context.rendezvous_ca.empty()) {
    env.Set("EVERSTEP_RENDEZVOUS_CA", context.rendezvous_ca);
    env.Set("EVERSTEP_RENDEZVOUS_NAME", context.rendezvous_name);
    env.Set("EVERSTEP_TOKEN_FILE", std::string(kTokenDirectory) + "/token");
  }
  env.Set("EVERSTEP_THREADS", context.threads_per_process);
  env.Set("EVERSTEP_CHECKPOINT_PATH", spec.checkpoint.path);
  env.SetGiven("EVERSTEP_CHECKPOINT_KEEP_LAST", spec.checkpoint.keep_last);
  env.SetGiven("EVERSTEP_CHECKPOINT_INTERVAL_STEPS", spec.checkpoint.interval_steps);
  env.SetGiven("EVERSTEP_CHECKPOINT_MILESTONE_STEPS", spec.checkpoint.milestone_steps);
  if (!spec.train.is_null() || !spec.train_config_map.empty()) {
    env.Set("EVERSTEP_TRAIN_FILE",
            std::string(names::kTrainMountPath) + "/" + names::kTrainFileKey);
  }
  if (context.first_start) env.Set("EVERSTEP_FIRST_START", 1);
  // The supervisor ends its processes before the kubelet ends it: their last words come out.
  env.Set("EVERSTEP_STOP_GRACE_SECONDS", std::max(1, GraceSeconds(job) - kLastWordsSeconds));
  // The user's own come last and win.
  for (const OrderedJson& entry : spec.env) env.list_.push_back(entry);
  return env.list_;
}

OrderedJson BuildContainer(const TrainingJob& job, int replica, int incarnation,
                           const PodContext& context) {
  const TrainingJobSpec& spec = job.spec;
  const std::string supervisor = BringsSupervisor(job, context)
                                     ? std::string(kProgramDirectory) + "/everstep-supervisor"
                                     : "everstep-supervisor";
  OrderedJson command = {supervisor, "--"};
  for (const std::string& word : spec.command) command.push_back(word);
  for (const std::string& word : spec.args) command.push_back(word);
  OrderedJson container = {{"name", names::kWorkerContainer}, {"command", command}};
  const std::string& image = spec.image.empty() ? context.worker_image : spec.image;
  if (!image.empty()) container["image"] = image;
  container["env"] = BuildEnvironment(job, replica, incarnation, context);
  container["volumeMounts"] = {{{"name", "checkpoint"}, {"mountPath", spec.checkpoint.path}}};
  if (!spec.train.is_null() || !spec.train_config_map.empty()) {
    container["volumeMounts"].push_back(
        {{"name", "train"}, {"mountPath", names::kTrainMountPath}, {"readOnly", true}});
  }
  if (!context.rendezvous_ca.empty()) {
    container["volumeMounts"].push_back(
        {{"name", "rendezvous-token"}, {"mountPath", kTokenDirectory}, {"readOnly", true}});
  }
  if (BringsSupervisor(job, context)) {
    container["volumeMounts"].push_back(
        {{"name", "programs"}, {"mountPath", kProgramDirectory}, {"readOnly", true}});
  }
  if (!spec.resources.is_null()) container["resources"] = spec.resources;
  if (spec.gpus_per_replica > 0) {
    container["resources"]["limits"]["nvidia.com/gpu"] = std::to_string(spec.gpus_per_replica);
  }
  return container;
}

// Kubelets rotate the token at four fifths of its life.
OrderedJson TokenVolume() {
  const OrderedJson token = {
      {"audience", "everstep"}, {"expirationSeconds", 3600}, {"path", "token"}};
  return {{"name", "rendezvous-token"},
          {"projected", {{"sources", OrderedJson::array({{{"serviceAccountToken", token}}})}}}};
}

OrderedJson SupervisorContainer(const PodContext& context) {
  OrderedJson container = {{"name", "everstep-supervisor"},
                           {"image", context.supervisor_image},
                           {"command",
                            {"/everstep/everstep-supervisor", "--install",
                             std::string(kProgramDirectory) + "/everstep-supervisor"}}};
  container["volumeMounts"] = {{{"name", "programs"}, {"mountPath", kProgramDirectory}}};
  RestrictContainer(container);
  return container;
}

OrderedJson BuildVolumes(const TrainingJob& job, const PodContext& context) {
  OrderedJson volumes = OrderedJson::array();
  volumes.push_back(
      {{"name", "checkpoint"}, {"persistentVolumeClaim", {{"claimName", ClaimName(job)}}}});
  if (!job.spec.train.is_null()) {
    volumes.push_back(
        {{"name", "train"}, {"configMap", {{"name", names::TrainConfigMap(job.name)}}}});
  } else if (!job.spec.train_config_map.empty()) {
    volumes.push_back(
        {{"name", "train"},
         {"configMap",
          {{"name", job.spec.train_config_map},
           {"items",
            {{{"key", job.spec.train_config_map_key}, {"path", names::kTrainFileKey}}}}}}});
  }
  if (!context.rendezvous_ca.empty()) volumes.push_back(TokenVolume());
  if (BringsSupervisor(job, context)) {
    volumes.push_back({{"name", "programs"}, {"emptyDir", OrderedJson::object()}});
  }
  return volumes;
}

// Merges the container into the template's of the same name, or adds it. Returns it.
OrderedJson& AddContainer(OrderedJson& pod_spec, OrderedJson container) {
  OrderedJson& containers = pod_spec["containers"];
  if (!containers.is_array()) containers = OrderedJson::array();
  for (OrderedJson& existing : containers) {
    if (existing.value("name", "") != names::kWorkerContainer) continue;
    for (const char* list : {"env", "volumeMounts"}) {
      OrderedJson both = existing.value(list, OrderedJson::array());
      for (const OrderedJson& entry : container[list]) both.push_back(entry);
      container[list] = std::move(both);
    }
    existing.merge_patch(container);
    return existing;
  }
  containers.push_back(std::move(container));
  return containers.back();
}

// What a person may also wish for without a template.
void AddWishes(OrderedJson& pod_spec, const TrainingJobSpec& spec) {
  if (spec.rendezvous.host_network) {
    pod_spec["hostNetwork"] = true;
    pod_spec["dnsPolicy"] = "ClusterFirstWithHostNet";
  }
  if (!spec.scheduling.priority_class_name.empty()) {
    pod_spec["priorityClassName"] = spec.scheduling.priority_class_name;
  }
}

// Replicas near each other, in one zone or rack, as far as that is possible.
void KeepTogether(OrderedJson& pod_spec, const TrainingJob& job) {
  if (job.spec.scheduling.topology_key.empty()) return;
  const OrderedJson term = {{"labelSelector", {{"matchLabels", {{names::kJobLabel, job.name}}}}},
                            {"topologyKey", job.spec.scheduling.topology_key}};
  pod_spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"].push_back(
      {{"weight", 100}, {"podAffinityTerm", term}});
}

}  // namespace

OrderedJson BuildPod(const TrainingJob& job, int replica, int incarnation,
                     const PodContext& context) {
  const OrderedJson user =
      job.spec.pod_template.is_object() ? job.spec.pod_template : OrderedJson::object();
  OrderedJson pod;
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  pod["metadata"] = user.value("metadata", OrderedJson::object());
  pod["metadata"].merge_patch(Metadata(job, names::Pod(job.name, replica, incarnation)));
  pod["metadata"]["labels"][names::kReplicaLabel] = std::to_string(replica);
  pod["metadata"]["labels"][names::kIncarnationLabel] = std::to_string(incarnation);
  pod["spec"] = user.value("spec", OrderedJson::object());
  OrderedJson& spec = pod["spec"];
  spec["restartPolicy"] = "Never";
  spec["terminationGracePeriodSeconds"] = GraceSeconds(job);
  spec["hostname"] = names::HostName(job.name, replica);
  spec["subdomain"] = names::Service(job.name);
  for (const OrderedJson& volume : BuildVolumes(job, context)) spec["volumes"].push_back(volume);
  if (BringsSupervisor(job, context))
    spec["initContainers"].push_back(SupervisorContainer(context));
  OrderedJson& worker = AddContainer(spec, BuildContainer(job, replica, incarnation, context));
  AddSharedMemory(spec, worker);
  RestrictContainer(worker);
  RestrictPod(spec);
  AddWishes(spec, job.spec);
  TolerateLostNodesBriefly(spec);
  KeepTogether(spec, job);
  KeepOffNodes(spec, context.nodes.excluded, context.nodes.avoided);
  return pod;
}

OrderedJson BuildTrainConfigMap(const TrainingJob& job) {
  OrderedJson object;
  object["apiVersion"] = "v1";
  object["kind"] = "ConfigMap";
  object["metadata"] = Metadata(job, names::TrainConfigMap(job.name));
  object["data"] = {{names::kTrainFileKey, DumpJson(job.spec.train, 2) + "\n"}};
  return object;
}

OrderedJson BuildService(const TrainingJob& job) {
  OrderedJson object;
  object["apiVersion"] = "v1";
  object["kind"] = "Service";
  object["metadata"] = Metadata(job, names::Service(job.name));
  object["spec"] = {{"clusterIP", "None"},
                    {"publishNotReadyAddresses", true},
                    {"selector", {{names::kJobLabel, job.name}}}};
  return object;
}

OrderedJson BuildNetworkPolicy(const TrainingJob& job) {
  const OrderedJson own = {{"matchLabels", {{names::kJobLabel, job.name}}}};
  OrderedJson object;
  object["apiVersion"] = "networking.k8s.io/v1";
  object["kind"] = "NetworkPolicy";
  object["metadata"] = Metadata(job, names::NetworkPolicy(job.name));
  object["spec"] = {{"podSelector", own}, {"policyTypes", OrderedJson::array({"Ingress"})}};
  // Every port: NCCL chooses its own.
  const OrderedJson from = OrderedJson::array({{{"podSelector", own}}});
  object["spec"]["ingress"] = OrderedJson::array({{{"from", from}}});
  return object;
}

OrderedJson BuildClaim(const TrainingJob& job) {
  OrderedJson object;
  object["apiVersion"] = "v1";
  object["kind"] = "PersistentVolumeClaim";
  object["metadata"] = Metadata(job, ClaimName(job));
  object["metadata"].erase("ownerReferences");
  const OrderedJson& wanted = job.spec.checkpoint.claim_template;
  const std::string storage_class = wanted.value("storageClassName", "");
  object["spec"] = {
      {"accessModes", wanted.value("accessModes", OrderedJson::array({"ReadWriteMany"}))},
      {"resources", {{"requests", {{"storage", wanted.value("storage", "")}}}}}};
  if (!storage_class.empty()) object["spec"]["storageClassName"] = storage_class;
  return object;
}

std::string ClaimName(const TrainingJob& job) {
  return job.spec.checkpoint.claim_name.empty() ? job.name : job.spec.checkpoint.claim_name;
}

}  // namespace everstep
