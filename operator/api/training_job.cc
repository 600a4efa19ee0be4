#include "operator/api/training_job.h"

#include <algorithm>
#include <set>

#include "common/strings.h"
#include "operator/api/job_rules.h"
#include "operator/api/names.h"
#include "operator/api/schema.h"

namespace everstep {
namespace {

// The value at a dotted path, or null.
const OrderedJson& At(const OrderedJson& root, std::string_view path) {
  static const OrderedJson kNull;
  const OrderedJson* at = &root;
  while (!path.empty()) {
    const size_t dot = path.find('.');
    const std::string key(path.substr(0, dot));
    if (!at->is_object() || !at->contains(key)) return kNull;
    at = &(*at)[key];
    path = dot == std::string_view::npos ? std::string_view{} : path.substr(dot + 1);
  }
  return *at;
}

template <typename T>
void Read(const OrderedJson& spec, std::string_view path, T& target) {
  const OrderedJson& value = At(spec, path);
  if (!value.is_null()) target = value.get<T>();
}
template <typename T>
void Read(const OrderedJson& spec, std::string_view path, std::optional<T>& target) {
  const OrderedJson& value = At(spec, path);
  if (!value.is_null() && !value.is_string()) target = value.get<T>();
}

// Only for an object whose fields were checked.
TrainingJobSpec ReadSpec(const OrderedJson& json) {
  TrainingJobSpec spec;
  Read(json, "replicas", spec.replicas);
  Read(json, "gpusPerReplica", spec.gpus_per_replica);
  spec.processes_per_replica = std::max(1, spec.gpus_per_replica);
  Read(json, "processesPerReplica", spec.processes_per_replica);
  Read(json, "threadsPerProcess", spec.threads_per_process);
  Read(json, "elastic.minReplicas", spec.elastic.min_replicas);
  Read(json, "elastic.onShrink", spec.elastic.on_shrink);
  Read(json, "elastic.lrScaling", spec.elastic.lr_scaling);
  Read(json, "spares", spec.spares);
  Read(json, "image", spec.image);
  Read(json, "command", spec.command);
  Read(json, "args", spec.args);
  Read(json, "env", spec.env);
  spec.resources = At(json, "resources");
  spec.pod_template = At(json, "template");
  spec.train = At(json, "train");
  Read(json, "trainFrom.configMapKeyRef.name", spec.train_config_map);
  Read(json, "trainFrom.configMapKeyRef.key", spec.train_config_map_key);
  Read(json, "rendezvous.port", spec.rendezvous.port);
  Read(json, "rendezvous.networkInterface", spec.rendezvous.network_interface);
  Read(json, "rendezvous.hostNetwork", spec.rendezvous.host_network);
  Read(json, "rendezvous.timeoutSeconds", spec.rendezvous.timeout_seconds);
  Read(json, "checkpoint.claimName", spec.checkpoint.claim_name);
  spec.checkpoint.claim_template = At(json, "checkpoint.claimTemplate");
  Read(json, "checkpoint.path", spec.checkpoint.path);
  Read(json, "checkpoint.keepLast", spec.checkpoint.keep_last);
  Read(json, "checkpoint.milestoneSteps", spec.checkpoint.milestone_steps);
  Read(json, "checkpoint.intervalSteps", spec.checkpoint.interval_steps);
  Read(json, "recovery.maxRestarts", spec.recovery.max_restarts);
  Read(json, "recovery.windowSeconds", spec.recovery.window_seconds);
  Read(json, "recovery.maxNoProgress", spec.recovery.max_no_progress);
  Read(json, "recovery.inPlaceBeforeRecreate", spec.recovery.in_place_before_recreate);
  Read(json, "recovery.backoff.initialSeconds", spec.recovery.backoff_initial_seconds);
  Read(json, "recovery.backoff.maxSeconds", spec.recovery.backoff_max_seconds);
  Read(json, "recovery.fatalExitCodes", spec.recovery.fatal_exit_codes);
  Read(json, "recovery.excludeNodeAfter", spec.recovery.exclude_node_after);
  Read(json, "health.heartbeatTimeoutSeconds", spec.health.heartbeat_timeout_seconds);
  Read(json, "health.stepTimeoutSeconds", spec.health.step_timeout_seconds);
  Read(json, "health.startupDeadlineSeconds", spec.health.startup_deadline_seconds);
  Read(json, "health.stuckTerminatingSeconds", spec.health.stuck_terminating_seconds);
  Read(json, "suspend", spec.suspend);
  Read(json, "activeDeadlineSeconds", spec.active_deadline_seconds);
  Read(json, "ttlSecondsAfterFinished", spec.ttl_seconds_after_finished);
  Read(json, "cleanPodPolicy", spec.clean_pod_policy);
  Read(json, "scheduling.gang", spec.scheduling.gang);
  Read(json, "scheduling.priorityClassName", spec.scheduling.priority_class_name);
  Read(json, "scheduling.topologyKey", spec.scheduling.topology_key);
  Read(json, "networkPolicy", spec.network_policy);
  Read(json, "managedBy", spec.managed_by);
  return spec;
}

class Validator {
 public:
  explicit Validator(const Document& document) : document_(document) {}

  void CheckIdentity() {
    Require("apiVersion", names::kApiVersion);
    Require("kind", names::kKind);
    if (At(document_.value, "spec").is_null()) {
      Complain("spec", "is missing: it says what to train");
    }
    const OrderedJson& name = At(document_.value, "metadata.name");
    if (name.is_null()) {
      Complain("metadata.name", "is missing: give the job a name");
    } else if (!name.is_string()) {
      Complain("metadata.name", "must be text (quote it), is " + DumpJson(name));
    } else {
      for (const NameRule& rule : NameRules()) {
        const std::string complaint = rule.complaint(name.get<std::string>());
        if (!complaint.empty()) return Complain("metadata.name", complaint);
      }
    }
  }

  void CheckSpec(const TrainingJobSpec& spec) {
    for (const JobRule& rule : JobRules()) {
      const std::string complaint = rule.complaint(spec);
      if (!complaint.empty()) Complain(std::string(rule.path), complaint);
    }
    CheckEnv(spec.env);
  }

  std::vector<std::string> problems;

 private:
  void CheckEnv(const OrderedJson& env) {
    std::set<std::string> seen;
    for (size_t i = 0; i < env.size(); ++i) {
      const std::string path = "spec.env[" + std::to_string(i) + "]";
      for (const EnvRule& rule : EnvRules()) {
        if (!rule.holds(env[i])) Complain(path, std::string(rule.message));
      }
      const auto name = env[i]["name"].get<std::string>();
      if (!seen.insert(name).second) Complain(path, name + " is given twice: remove one");
    }
  }

  void Complain(const std::string& path, const std::string& what) {
    problems.push_back(document_.Where(path) + path + ": " + what);
  }
  void Require(const std::string& key, const std::string& wanted) {
    const OrderedJson& value = At(document_.value, key);
    if (value.is_null()) {
      Complain(key, "is missing: must be " + wanted);
    } else if (value != wanted) {
      Complain(key, "must be " + wanted + ", is " + DumpJson(value));
    }
  }

  const Document& document_;
};

std::string BareTrainingFileHint(const Document& document) {
  if (!document.value.contains("model_name_or_path") && !document.value.contains("stage"))
    return "";
  return document.source +
         ":1: is a LLaMA-Factory training file: put it under spec.train of a TrainingJob "
         "(apiVersion: everstep.dev/v1alpha1, kind: TrainingJob, metadata: {name: my-job}, "
         "spec: {replicas: 1, train: {...}})";
}

}  // namespace

bool IsBoundToOneNode(const TrainingJobSpec& spec) {
  const OrderedJson& node = At(spec.pod_template, "spec.nodeName");
  const OrderedJson& selector = At(spec.pod_template, "spec.nodeSelector");
  return !node.is_null() || (selector.is_object() && selector.contains("kubernetes.io/hostname"));
}

Result<TrainingJob> ParseTrainingJob(const Document& document) {
  if (const std::string hint = BareTrainingFileHint(document); !hint.empty()) {
    return InvalidArgument(hint);
  }
  Validator validator(document);
  validator.CheckIdentity();
  std::vector<std::string> problems = std::move(validator.problems);
  validator.problems.clear();
  // Of another kind of object every field would be unknown: that it is one says enough.
  const OrderedJson& kind = At(document.value, "kind");
  if (kind.is_null() || kind == names::kKind) {
    std::ranges::copy(CheckFields(document), std::back_inserter(problems));
  }
  TrainingJob job;
  if (problems.empty()) {
    job.name = document.value["metadata"]["name"].get<std::string>();
    job.spec = ReadSpec(document.value["spec"]);
    validator.CheckSpec(job.spec);
    problems = std::move(validator.problems);
  }
  if (!problems.empty()) return InvalidArgument(Join(problems, "\n"));
  return job;
}

Result<TrainingJob> TrainingJobFromJson(const OrderedJson& object) {
  Document document{"TrainingJob", object, {}};
  ASSIGN_OR_RETURN(TrainingJob job, ParseTrainingJob(document));
  Read(object, "metadata.namespace", job.namespace_name);
  Read(object, "metadata.uid", job.uid);
  Read(object, "metadata.generation", job.generation);
  return job;
}

}  // namespace everstep
