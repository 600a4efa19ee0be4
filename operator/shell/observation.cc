#include "operator/shell/observation.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "operator/api/conditions.h"
#include "operator/api/names.h"
#include "operator/api/timestamp.h"

namespace everstep {
namespace {

PodPhase ParsePhase(const std::string& phase) {
  if (phase == "Running") return PodPhase::kRunning;
  if (phase == "Succeeded") return PodPhase::kSucceeded;
  if (phase == "Failed") return PodPhase::kFailed;
  return PodPhase::kPending;
}

OrderedJson Part(const OrderedJson& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) return OrderedJson::object();
  return object[key];
}

int NumberLabel(const OrderedJson& labels, const char* name) {
  const std::string text = labels.value(name, "");
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// "Unschedulable: 0/3 nodes are available" or the first container's "ImagePullBackOff: ...".
std::string WaitingFor(const OrderedJson& status) {
  static const std::set<std::string> kOrdinary{"", "ContainerCreating", "PodInitializing"};
  for (const OrderedJson& condition : status.value("conditions", OrderedJson::array())) {
    if (condition.value("type", "") != "PodScheduled") continue;
    if (condition.value("reason", "") == "Unschedulable") {
      return "Unschedulable: " + condition.value("message", "");
    }
  }
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const OrderedJson& container : status.value(list, OrderedJson::array())) {
      const OrderedJson waiting = Part(Part(container, "state"), "waiting");
      const std::string reason = waiting.value("reason", "");
      if (kOrdinary.contains(reason)) continue;
      const std::string message = waiting.value("message", "");
      return message.empty() ? reason : reason + ": " + message;
    }
  }
  return "";
}

// The worker's, or that of the container that kept it from starting.
OrderedJson Terminated(const OrderedJson& status) {
  for (const char* list : {"containerStatuses", "initContainerStatuses"}) {
    for (const OrderedJson& container : status.value(list, OrderedJson::array())) {
      const OrderedJson terminated = Part(Part(container, "state"), "terminated");
      if (terminated.value("exitCode", 0) != 0) return terminated;
    }
  }
  return OrderedJson::object();
}

void ReadEnd(const OrderedJson& status, PodView& view) {
  const OrderedJson terminated = Terminated(status);
  view.exit_code = terminated.value("exitCode", 0);
  view.ended_unix_seconds = ParseTimestamp(terminated.value("finishedAt", ""));
  view.message = status.value("message", "");
  if (view.message.empty()) view.message = terminated.value("message", "");
  if (view.message.empty() && terminated.value("reason", "") == "OOMKilled") {
    view.message = "was killed for using more memory than its limit (OOMKilled)";
  }
}

}  // namespace

PodView ViewOfPod(const OrderedJson& pod) {
  PodView view;
  const OrderedJson metadata = Part(pod, "metadata");
  const OrderedJson labels = Part(metadata, "labels");
  view.name = metadata.value("name", "");
  view.replica = NumberLabel(labels, names::kReplicaLabel);
  view.incarnation = NumberLabel(labels, names::kIncarnationLabel);
  view.deleting = metadata.contains("deletionTimestamp");
  view.gone_by_unix_seconds = ParseTimestamp(metadata.value("deletionTimestamp", ""));
  view.node = Part(pod, "spec").value("nodeName", "");
  const OrderedJson status = Part(pod, "status");
  view.phase = ParsePhase(status.value("phase", ""));
  view.disrupted = HasCondition(status, "DisruptionTarget");
  if (view.phase == PodPhase::kPending) view.waiting = WaitingFor(status);
  if (view.phase == PodPhase::kFailed) ReadEnd(status, view);
  return view;
}

ClaimView ViewOfClaim(const OrderedJson& claim) {
  const OrderedJson modes = Part(claim, "spec").value("accessModes", OrderedJson::array());
  ClaimView view;
  view.one_node_only = std::none_of(modes.begin(), modes.end(), [](const OrderedJson& mode) {
    return mode == "ReadWriteMany" || mode == "ReadOnlyMany";
  });
  return view;
}

bool IsBeingTakenAway(const OrderedJson& pod) {
  return Part(pod, "metadata").contains("deletionTimestamp") ||
         HasCondition(Part(pod, "status"), "DisruptionTarget");
}

bool IsOwnedBy(const OrderedJson& object, const std::string& uid) {
  const OrderedJson owners =
      Part(object, "metadata").value("ownerReferences", OrderedJson::array());
  return std::any_of(owners.begin(), owners.end(),
                     [&](const OrderedJson& owner) { return owner.value("uid", "") == uid; });
}

}  // namespace everstep
