#include "operator/core/pod_builder.h"

#include "operator/api/names.h"

namespace everstep {
namespace {

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
  env.Set("EVERSTEP_TOKEN", context.token);
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
  // The user's own come last and win.
  for (const OrderedJson& entry : spec.env) env.list_.push_back(entry);
  return env.list_;
}

std::string ClaimOf(const TrainingJob& job) {
  return job.spec.checkpoint.claim_name.empty() ? job.name : job.spec.checkpoint.claim_name;
}

OrderedJson BuildContainer(const TrainingJob& job, int replica, int incarnation,
                           const PodContext& context) {
  const TrainingJobSpec& spec = job.spec;
  OrderedJson command = {"everstep-supervisor", "--"};
  for (const std::string& word : spec.command) command.push_back(word);
  for (const std::string& word : spec.args) command.push_back(word);
  OrderedJson container = {{"name", names::kWorkerContainer}, {"command", command}};
  if (!spec.image.empty()) container["image"] = spec.image;
  container["env"] = BuildEnvironment(job, replica, incarnation, context);
  container["volumeMounts"] = {{{"name", "checkpoint"}, {"mountPath", spec.checkpoint.path}}};
  if (!spec.train.is_null() || !spec.train_config_map.empty()) {
    container["volumeMounts"].push_back(
        {{"name", "train"}, {"mountPath", names::kTrainMountPath}, {"readOnly", true}});
  }
  if (!spec.resources.is_null()) container["resources"] = spec.resources;
  if (spec.gpus_per_replica > 0) {
    container["resources"]["limits"]["nvidia.com/gpu"] = std::to_string(spec.gpus_per_replica);
  }
  return container;
}

OrderedJson BuildVolumes(const TrainingJob& job) {
  OrderedJson volumes = OrderedJson::array();
  volumes.push_back(
      {{"name", "checkpoint"}, {"persistentVolumeClaim", {{"claimName", ClaimOf(job)}}}});
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
  return volumes;
}

// Merges the container into the template's of the same name, or adds it.
void AddContainer(OrderedJson& pod_spec, OrderedJson container) {
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
    return;
  }
  containers.push_back(std::move(container));
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
  spec["hostname"] = names::HostName(job.name, replica);
  spec["subdomain"] = names::Service(job.name);
  AddContainer(spec, BuildContainer(job, replica, incarnation, context));
  for (const OrderedJson& volume : BuildVolumes(job)) spec["volumes"].push_back(volume);
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

}  // namespace everstep
