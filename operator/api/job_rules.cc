#include "operator/api/job_rules.h"

#include <algorithm>

#include "operator/api/names.h"
#include "operator/api/schema.h"

namespace everstep {
namespace {

constexpr std::string_view kNothingToRun =
    "is missing: give a LLaMA-Factory training file here, or spec.trainFrom, or spec.command for a "
    "program of your own";
constexpr std::string_view kOneClaim = "and claimName are both given: keep one";
constexpr std::string_view kOneFile = "and spec.train are both given: keep one";
constexpr std::string_view kArgs = "needs spec.command: the program that they are for";
constexpr std::string_view kScaling =
    "needs spec.elastic.onShrink: ScaleBatch; with KeepGlobalBatch the batch stays what it is";
constexpr std::string_view kNoMode = "is empty: leave it out, or give [ReadWriteMany]";
constexpr std::string_view kOneNode =
    "must include ReadWriteMany where spec.replicas is more than 1, or the pods cannot share the "
    "volume: change them, or use one replica with several processes";

// Holds of the text or says so.
std::string Unless(bool holds, std::string_view message) {
  return holds ? "" : std::string(message);
}

std::string MustBeAtMost(double value, double most, const std::string& what) {
  if (value <= most) return "";
  return "must be at most " + what + " (" + NumberText(most) + "), is " + NumberText(value);
}

// A pod that is bound to one node may use a claim that only one node can mount.
bool CanShareItsClaim(const TrainingJobSpec& spec) {
  const OrderedJson& claim = spec.checkpoint.claim_template;
  if (claim.is_null() || spec.replicas == 1 || IsBoundToOneNode(spec)) return true;
  const OrderedJson modes = claim.value("accessModes", OrderedJson());
  return !modes.is_array() || modes.empty() ||
         std::ranges::find(modes, OrderedJson("ReadWriteMany")) != modes.end();
}

bool NamesNoMode(const TrainingJobSpec& spec) {
  const OrderedJson& claim = spec.checkpoint.claim_template;
  if (claim.is_null() || !claim.contains("accessModes")) return false;
  return claim["accessModes"].is_array() && claim["accessModes"].empty();
}

// A label of the DNS that begins with a letter: a Service is called like this, and pods' host names
// begin with it.
constexpr TextForm kJobName{
    "^[a-z]([-a-z0-9]*[a-z0-9])?$",
    "must be lower-case letters, digits and '-', begin with a letter and not end with '-'"};

}  // namespace

std::span<const JobRule> JobRules() {
  using Spec = TrainingJobSpec;
  static const JobRule kRules[] = {
      {"spec.trainFrom", "!(has(self.train) && has(self.trainFrom))", kOneFile,
       [](const Spec& spec) {
         return Unless(spec.train.is_null() || spec.train_config_map.empty(), kOneFile);
       }},
      {"spec.train",
       "has(self.train) || has(self.trainFrom) || (has(self.command) && self.command.size() > 0)",
       kNothingToRun,
       [](const Spec& spec) {
         return Unless(
             !spec.train.is_null() || !spec.train_config_map.empty() || !spec.command.empty(),
             kNothingToRun);
       }},
      {"spec.args",
       "!has(self.args) || self.args.size() == 0 || (has(self.command) && self.command.size() > 0)",
       kArgs,
       [](const Spec& spec) { return Unless(spec.args.empty() || !spec.command.empty(), kArgs); }},
      {"spec.elastic.minReplicas", "self.elastic.minReplicas <= self.replicas",
       "must be at most spec.replicas",
       [](const Spec& spec) {
         return MustBeAtMost(spec.elastic.min_replicas, spec.replicas, "spec.replicas");
       }},
      {"spec.elastic.lrScaling",
       "self.elastic.lrScaling == 'None' || self.elastic.onShrink == 'ScaleBatch'", kScaling,
       [](const Spec& spec) {
         return Unless(spec.elastic.lr_scaling == "None" || spec.elastic.on_shrink == "ScaleBatch",
                       kScaling);
       }},
      {"spec.processesPerReplica",
       "self.gpusPerReplica == 0 || !has(self.processesPerReplica) || "
       "self.processesPerReplica <= self.gpusPerReplica",
       "must be at most spec.gpusPerReplica: a process needs a GPU of its own",
       [](const Spec& spec) {
         if (spec.gpus_per_replica == 0) return std::string();
         return MustBeAtMost(spec.processes_per_replica, spec.gpus_per_replica,
                             "spec.gpusPerReplica");
       }},
      {"spec.replicas",
       "self.replicas * (has(self.processesPerReplica) ? self.processesPerReplica : "
       "self.gpusPerReplica > 0 ? self.gpusPerReplica : 1) <= 16384",
       "times the processes of a replica must be at most 16384",
       [](const Spec& spec) {
         static_assert(kMaxWorldSize == 16384);
         const int64_t world = int64_t{spec.replicas} * spec.processes_per_replica;
         if (world <= kMaxWorldSize) return std::string();
         return "times the processes of a replica must be at most 16384, is " +
                std::to_string(world);
       }},
      {"spec.checkpoint.claimTemplate",
       "!(has(self.checkpoint.claimName) && has(self.checkpoint.claimTemplate))", kOneClaim,
       [](const Spec& spec) {
         return Unless(
             spec.checkpoint.claim_name.empty() || spec.checkpoint.claim_template.is_null(),
             kOneClaim);
       }},
      {"spec.checkpoint.claimTemplate.accessModes",
       "!has(self.checkpoint.claimTemplate) || !has(self.checkpoint.claimTemplate.accessModes) || "
       "self.checkpoint.claimTemplate.accessModes.size() > 0",
       kNoMode, [](const Spec& spec) { return Unless(!NamesNoMode(spec), kNoMode); }},
      {"spec.checkpoint.claimTemplate.accessModes",
       "!has(self.checkpoint.claimTemplate) || !has(self.checkpoint.claimTemplate.accessModes) || "
       "self.replicas == 1 || self.checkpoint.claimTemplate.accessModes.size() == 0 || "
       "self.checkpoint.claimTemplate.accessModes.exists(mode, mode == 'ReadWriteMany') || "
       "(has(self.template) && has(self.template.spec) && (has(self.template.spec.nodeName) || "
       "(has(self.template.spec.nodeSelector) && "
       "'kubernetes.io/hostname' in self.template.spec.nodeSelector)))",
       kOneNode, [](const Spec& spec) { return Unless(CanShareItsClaim(spec), kOneNode); }},
      {"spec.recovery.backoff.initialSeconds",
       "self.recovery.backoff.initialSeconds <= self.recovery.backoff.maxSeconds",
       "must be at most maxSeconds",
       [](const Spec& spec) {
         return MustBeAtMost(spec.recovery.backoff_initial_seconds,
                             spec.recovery.backoff_max_seconds, "maxSeconds");
       }},
  };
  return kRules;
}

std::span<const EnvRule> EnvRules() {
  static const EnvRule kRules[] = {
      {"has(self.value) != has(self.valueFrom)", "needs either value or valueFrom",
       [](const OrderedJson& entry) {
         const auto given = [&](const char* key) {
           return entry.contains(key) && !entry[key].is_null();
         };
         return given("value") != given("valueFrom");
       }},
      {"!self.name.startsWith('EVERSTEP_') || self.name.startsWith('EVERSTEP_LOG_')",
       "names beginning with EVERSTEP_ are Everstep's own (EVERSTEP_LOG_LEVEL and "
       "EVERSTEP_LOG_FORMAT may be set): rename it",
       [](const OrderedJson& entry) {
         const auto name = entry["name"].get<std::string>();
         return !name.starts_with("EVERSTEP_") || name.starts_with("EVERSTEP_LOG_");
       }},
  };
  return kRules;
}

std::span<const NameRule> NameRules() {
  static_assert(names::kMaxJobNameLength == 49);
  static const NameRule kRules[] = {
      {"self.metadata.name.matches(r'^[a-z]([-a-z0-9]*[a-z0-9])?$')", kJobName.must,
       [](const std::string& name) {
         return HasForm(name, kJobName) ? "" : std::string(kJobName.must) + ", is '" + name + "'";
       }},
      {"self.metadata.name.size() <= 49",
       "must be at most 49 characters long (pods are named after it)",
       [](const std::string& name) {
         if (name.size() <= names::kMaxJobNameLength) return std::string();
         return "must be at most 49 characters long (pods are named after it), has " +
                std::to_string(name.size());
       }},
  };
  return kRules;
}

}  // namespace everstep
