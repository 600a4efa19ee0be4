// The table of a TrainingJob's fields.
#include <algorithm>

#include "operator/api/schema.h"

namespace everstep {
namespace {

using enum FieldType;

// Names of objects, and values of labels.
constexpr size_t kName = 253;
constexpr size_t kLabel = 63;
constexpr size_t kPath = 1024;
constexpr size_t kWords = 256;
constexpr size_t kWordLength = 32768;

constexpr TextForm kObjectName{"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
                               "must be an object's name: lower-case letters, digits, '-' and '.'"};
constexpr TextForm kLabelName{
    "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    "must be a label's name, such as topology.kubernetes.io/zone"};
constexpr TextForm kSize{"^[0-9]+([.][0-9]+)?([kMGTPE]|[KMGTPE]i)?$",
                         "must be a size such as 100Gi"};
constexpr TextForm kImage{"^[^ \\t\\r\\n]*$", "must be an image's name, without blanks"};
constexpr TextForm kVariable{"^[A-Za-z_.-][A-Za-z0-9_.-]*$",
                             "must be a variable's name: letters, digits and '_'"};
constexpr TextForm kAbsolutePath{"^/[^:]*[^:/]/?$",
                                 "must be an absolute path (not / itself, no ':')"};

// A row of the table, built up: Integer("spec.spares", 0, 1024, "...").Or("0").
struct Row {
  FieldRule rule;

  Row&& Or(std::string_view preset) && { return rule.preset = preset, std::move(*this); }
  Row&& Live() && { return rule.live = true, std::move(*this); }
  Row&& Required() && { return rule.required = true, std::move(*this); }
  Row&& Like(const TextForm& form) && { return rule.form = &form, std::move(*this); }
  Row&& Choices(std::vector<std::string_view> choices) && {
    return rule.choices = std::move(choices), std::move(*this);
  }
};

Row Of(FieldType type, std::string_view path, std::string_view about) {
  return {{.path = path, .type = type, .about = about}};
}
Row Object(std::string_view path, std::string_view about) { return Of(kObject, path, about); }
Row Mapping(std::string_view path, std::string_view about) { return Of(kMapping, path, about); }
Row Free(std::string_view path, std::string_view about) { return Of(kFree, path, about); }
Row Bool(std::string_view path, std::string_view about) { return Of(kBool, path, about); }

Row Ranged(FieldType type, std::string_view path, double minimum, double maximum,
           std::string_view about) {
  Row row = Of(type, path, about);
  row.rule.minimum = minimum;
  row.rule.maximum = maximum;
  return row;
}
Row Integer(std::string_view path, double minimum, double maximum, std::string_view about) {
  return Ranged(kInteger, path, minimum, maximum, about);
}
Row Number(std::string_view path, double minimum, double maximum, std::string_view about) {
  return Ranged(kNumber, path, minimum, maximum, about);
}

Row Text(std::string_view path, size_t longest, std::string_view about) {
  Row row = Of(kText, path, about);
  row.rule.longest = longest;
  return row;
}
Row Choice(std::string_view path, std::vector<std::string_view> choices, std::string_view about) {
  return Of(kText, path, about).Choices(std::move(choices));
}

Row Several(Row row, size_t most) {
  row.rule.most = most;
  return row;
}
Row Words(std::string_view path, std::string_view about) {
  Row row = Several(Of(kTextList, path, about), kWords);
  row.rule.longest = kWordLength;
  return row;
}
Row TextMap(std::string_view path, size_t longest, std::string_view about) {
  Row row = Several(Of(kTextMap, path, about), 64);
  row.rule.longest = longest;
  return row;
}

constexpr double kForever = 1e9;
constexpr double kDay = 86400;

std::vector<Row> Strength() {
  return {
      Integer("spec.replicas", 1, 4096, "Pods of the job: machines, or shares of one.")
          .Or("1")
          .Live(),
      Integer("spec.processesPerReplica", 1, 64,
              "Training processes in a pod. Default: one for each GPU, or one."),
      Integer("spec.gpusPerReplica", 0, 64, "GPUs of a pod: its limit of nvidia.com/gpu.").Or("0"),
      Integer("spec.threadsPerProcess", 1, 1024,
              "Threads of a process. Results depend on it, so it is fixed when the job is created. "
              "Default: chosen then."),
      Object("spec.elastic", "What happens while replicas are missing.").Or("{}").Live(),
      Integer("spec.elastic.minReplicas", 1, 4096,
              "Training waits while fewer replicas than these are there.")
          .Or("1"),
      Choice("spec.elastic.onShrink", {"KeepGlobalBatch", "ScaleBatch"},
             "KeepGlobalBatch: the others do the missing replicas' work, and the weights come out "
             "the same. ScaleBatch: the batch gets smaller, and results differ.")
          .Or("\"KeepGlobalBatch\""),
      Choice("spec.elastic.lrScaling", {"Linear", "Sqrt", "None"},
             "How the learning rate follows the batch; for onShrink: ScaleBatch.")
          .Or("\"None\""),
      Integer("spec.spares", 0, 1024, "Warm pods that wait to take a dead replica's place.")
          .Or("0"),
  };
}

std::vector<Row> Program() {
  return {
      Text("spec.image", kPath, "Image of the pods. Default: the operator's worker image.")
          .Like(kImage),
      Words("spec.command", "A program of your own instead of Everstep's worker."),
      Words("spec.args", "Arguments of command."),
      Several(Of(kList, "spec.env", "Environment of the training processes."), kWords),
      Text("spec.env.name", kPath, "The variable's name.").Like(kVariable).Required(),
      Text("spec.env.value", kWordLength, "Its value. Either value or valueFrom is given."),
      Mapping("spec.env.valueFrom", "Where its value comes from, as in a pod."),
      Mapping("spec.resources", "Requests and limits of a pod's container, as in a pod."),
      Object("spec.template",
             "A pod template that is merged underneath; the container is called worker."),
      Object("spec.template.metadata", "Labels and annotations of the pods."),
      TextMap("spec.template.metadata.labels", kLabel, "Labels of the pods."),
      TextMap("spec.template.metadata.annotations", kWordLength, "Annotations of the pods."),
      Of(kOpen, "spec.template.spec", "The rest of the pods' spec, as in a pod."),
      Choice("spec.template.spec.restartPolicy", {"Never"}, "Pods are not restarted but replaced."),
      Text("spec.template.spec.nodeName", kName, "The one node for all pods."),
      TextMap("spec.template.spec.nodeSelector", kLabel, "Labels that the pods' nodes have."),
      Mapping("spec.train", "A LLaMA-Factory training file, unchanged."),
      Object("spec.trainFrom", "Where the training file is, if it is not in train."),
      Object("spec.trainFrom.configMapKeyRef", "A key of a ConfigMap.").Required(),
      Text("spec.trainFrom.configMapKeyRef.name", kName, "The ConfigMap.")
          .Like(kObjectName)
          .Required(),
      Text("spec.trainFrom.configMapKeyRef.key", kName, "The key.").Required(),
  };
}

std::vector<Row> Rendezvous() {
  return {
      Object("spec.rendezvous", "How the processes find each other.").Or("{}"),
      Integer("spec.rendezvous.port", 1, 65535, "MASTER_PORT.").Or("29500"),
      Text("spec.rendezvous.networkInterface", kLabel,
           "Name of the interface to talk on; auto: the one towards the master.")
          .Or("\"auto\""),
      Bool("spec.rendezvous.hostNetwork", "Pods use their node's network.").Or("false"),
      Integer("spec.rendezvous.timeoutSeconds", 1, kDay, "How long a process waits for the others.")
          .Or("600"),
  };
}

std::vector<Row> Checkpoint() {
  return {
      Object("spec.checkpoint", "The volume that all pods share, and what is kept on it.").Or("{}"),
      Text("spec.checkpoint.claimName", kName,
           "A PersistentVolumeClaim that exists. Default: the one of the job's name.")
          .Like(kObjectName),
      Object("spec.checkpoint.claimTemplate",
             "A claim of the job's name is created like this, and kept when the job is deleted."),
      Text("spec.checkpoint.claimTemplate.storage", kLabel, "Its size: 100Gi.")
          .Like(kSize)
          .Required(),
      Text("spec.checkpoint.claimTemplate.storageClassName", kName,
           "Its class. Default: the cluster's.")
          .Like(kObjectName),
      Several(Of(kTextList, "spec.checkpoint.claimTemplate.accessModes",
                 "Default: ReadWriteMany, which several replicas need.")
                  .Choices({"ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"}),
              3),
      Text("spec.checkpoint.path", kPath, "Where the claim is mounted in the pods.")
          .Like(kAbsolutePath)
          .Or("\"/checkpoints\""),
      Integer("spec.checkpoint.keepLast", 1, 10000, "Newest checkpoints that are kept."),
      Integer("spec.checkpoint.milestoneSteps", 1, kForever,
              "Checkpoints of these multiples are kept for ever."),
      Integer("spec.checkpoint.intervalSteps", 1, kForever,
              "Steps between checkpoints. Default: the training file's save_steps."),
  };
}

std::vector<Row> Recovery() {
  return {
      Object("spec.recovery", "What is done about failures, and how often.").Or("{}").Live(),
      Integer("spec.recovery.maxRestarts", 0, 100000,
              "Restarts within the window, without a checkpoint between, before the job fails.")
          .Or("10"),
      Integer("spec.recovery.windowSeconds", 1, kForever, "The window.").Or("21600"),
      Integer("spec.recovery.maxNoProgress", 1, 1000,
              "Failures in a row in the same step before the job fails.")
          .Or("3"),
      Integer("spec.recovery.inPlaceBeforeRecreate", 0, 1000,
              "New processes in the same pod before the pod is replaced.")
          .Or("3"),
      Object("spec.recovery.backoff", "Waits before restarts without progress between.").Or("{}"),
      Number("spec.recovery.backoff.initialSeconds", 0, kDay, "The first; doubled each time.")
          .Or("1"),
      Number("spec.recovery.backoff.maxSeconds", 0, kDay, "The longest.").Or("300"),
      Several(Ranged(kIntegerList, "spec.recovery.fatalExitCodes", 1, 255,
                     "Exit codes that no restart cures: the job fails at once."),
              kWords)
          .Or("[2,3,78]"),
      Integer("spec.recovery.excludeNodeAfter", 1, 1000,
              "Faults of a node within the window before pods are kept off it.")
          .Or("2"),
  };
}

std::vector<Row> Health() {
  return {
      Object("spec.health", "When something counts as dead.").Or("{}").Live(),
      Number("spec.health.heartbeatTimeoutSeconds", 0.1, 3600,
             "A pod that is silent for so long is lost.")
          .Or("1"),
      Ranged(kIntegerOrAuto, "spec.health.stepTimeoutSeconds", 1, kDay,
             "A step that takes longer hangs; auto: learned from the steps before.")
          .Or("\"auto\""),
      Integer("spec.health.startupDeadlineSeconds", 1, kDay,
              "The job fails when training has not started by then.")
          .Or("1800"),
      Integer("spec.health.stuckTerminatingSeconds", 1, kDay,
              "A pod that ends longer than its grace and this is replaced without waiting for it.")
          .Or("60"),
  };
}

std::vector<Row> Lifecycle() {
  return {
      Bool("spec.suspend", "True: save a checkpoint and give everything back until it is false.")
          .Or("false")
          .Live(),
      Text("spec.queueName", kName, "The Kueue queue that the job waits in.").Like(kObjectName),
      Text("spec.managedBy", kLabel, "Who runs this job, when it is not this operator."),
      Object("spec.scheduling", "Where the pods go.").Or("{}"),
      Choice("spec.scheduling.gang", {"None", "Volcano", "Coscheduling", "Native"},
             "Whether, and by whom, pods are scheduled all or none.")
          .Or("\"None\""),
      Text("spec.scheduling.priorityClassName", kName, "Priority class of the pods.")
          .Like(kObjectName),
      Text("spec.scheduling.topologyKey", kName,
           "Pods are kept near each other by this label of nodes.")
          .Like(kLabelName),
      Integer("spec.activeDeadlineSeconds", 1, kForever,
              "The job fails when it has not ended after so long.")
          .Live(),
      Integer("spec.ttlSecondsAfterFinished", 0, kForever,
              "The job is deleted so long after its end. Default: never.")
          .Live(),
      Choice("spec.cleanPodPolicy", {"None", "Running", "All"},
             "Which pods are deleted when the job has ended.")
          .Or("\"Running\"")
          .Live(),
      Choice("spec.networkPolicy", {"None", "Isolated"},
             "Isolated: only the job's own pods reach its pods.")
          .Or("\"Isolated\""),
  };
}

std::vector<FieldRule> MakeTable() {
  std::vector<FieldRule> table{
      Text("apiVersion", kName, "everstep.dev/v1alpha1").rule,
      Text("kind", kLabel, "TrainingJob").rule,
      Mapping("metadata", "Name, namespace, labels and annotations.").rule,
      Object("spec", "What to train, and how.").Required().rule,
  };
  for (auto part : {Strength, Program, Rendezvous, Checkpoint, Recovery, Health, Lifecycle}) {
    for (Row& row : part()) table.push_back(std::move(row.rule));
  }
  table.push_back(Free("status", "What the operator has to say.").rule);
  return table;
}

}  // namespace

std::span<const FieldRule> TrainingJobFields() {
  static const std::vector<FieldRule> table = MakeTable();
  return table;
}

const FieldRule* FindField(std::string_view path) {
  const auto fields = TrainingJobFields();
  const auto found =
      std::ranges::find_if(fields, [&](const FieldRule& rule) { return rule.path == path; });
  return found == fields.end() ? nullptr : &*found;
}

std::string_view FieldName(const FieldRule& field) {
  return field.path.substr(field.path.rfind('.') + 1);
}

std::vector<const FieldRule*> FieldsBelow(std::string_view parent) {
  std::vector<const FieldRule*> below;
  for (const FieldRule& rule : TrainingJobFields()) {
    const size_t dot = rule.path.rfind('.');
    const std::string_view own =
        dot == std::string_view::npos ? std::string_view{} : rule.path.substr(0, dot);
    if (own == parent) below.push_back(&rule);
  }
  return below;
}

}  // namespace everstep
