#include "operator/core/conclusion.h"

#include "operator/api/conditions.h"
#include "operator/api/names.h"

namespace everstep {
namespace {

class Conclusion {
 public:
  Conclusion(const Observed& observed, WallTime now, OrderedJson& status)
      : observed_(observed), now_(now), status_(status) {}

  void Draw() {
    Count();
    Explain();
    const auto phase = status_["phase"].get<std::string>();
    const std::string message = status_.value("message", "");
    const auto follow = [&](const char* type, bool value) {
      Set(type, value, value ? phase : "Not" + std::string(type), message);
    };
    follow("Running", phase == "Running");
    follow("Recovering", phase == "Recovering");
    follow("Suspended", phase == "Suspended");
    follow("Succeeded", phase == "Succeeded");
    follow("Failed", phase == "Failed");
    follow("Ready", phase == "Running" || phase == "Succeeded");
    follow("Reconciling", phase == "Pending" || phase == "Recovering");
    follow("Stalled", phase == "Failed");
    Resources();
  }

 private:
  void Count() {
    int running = 0;
    for (const PodView& pod : observed_.pods) {
      running += pod.phase == PodPhase::kRunning && !pod.deleting ? 1 : 0;
    }
    const int desired = observed_.job.spec.replicas;
    status_["replicaStatuses"] = {{"desired", desired}, {"running", running}};
    status_["ready"] = std::to_string(running) + "/" + std::to_string(desired);
    status_["selector"] = std::string(names::kJobLabel) + "=" + observed_.job.name;
  }

  // A job that ended has said why.
  void Explain() {
    if (IsTerminal(status_)) return;
    std::string message = FindVolumeProblem(observed_).message;
    if (message.empty() && status_.contains("createFailure")) {
      message = status_["createFailure"].value("message", "");
    }
    if (message.empty()) message = WhatPodsWaitFor(observed_);
    if (message.empty()) {
      status_.erase("message");
    } else {
      status_["message"] = message;
    }
  }

  void Resources() {
    if (!IsTerminal(status_)) {
      const VolumeProblem volume = FindVolumeProblem(observed_);
      Set("VolumesReady", volume.reason.empty(), volume.reason.empty() ? "Found" : volume.reason,
          volume.message);
      const OrderedJson failure = status_.value("createFailure", OrderedJson::object());
      const bool quota = failure.value("quota", false);
      Set("QuotaAvailable", !quota, quota ? "Exceeded" : "Available",
          quota ? failure.value("message", "") : "");
    }
    const std::string warning = status_.value("checkpointWarning", "");
    Set("CheckpointHealthy", warning.empty(), warning.empty() ? "Saved" : "SaveFailed", warning);
  }

  void Set(const std::string& type, bool value, const std::string& reason,
           const std::string& message) {
    SetCondition(status_, {type, value, reason, message}, observed_.job.generation, now_);
  }

  const Observed& observed_;
  const WallTime now_;
  OrderedJson& status_;
};

}  // namespace

VolumeProblem FindVolumeProblem(const Observed& observed) {
  const TrainingJobSpec& spec = observed.job.spec;
  const std::string claim = ClaimName(observed.job);
  if (!observed.claim) {
    // One with a template is made.
    if (!spec.checkpoint.claim_template.is_null()) return {};
    return {"ClaimNotFound", "PersistentVolumeClaim '" + claim +
                                 "' does not exist: create it, or give "
                                 "spec.checkpoint.claimTemplate: {storage: ...}"};
  }
  if (observed.claim->one_node_only && spec.replicas > 1 && !IsBoundToOneNode(spec)) {
    return {"ReadWriteOnce", "PersistentVolumeClaim '" + claim +
                                 "' can be mounted on one node only and spec.replicas is " +
                                 std::to_string(spec.replicas) +
                                 ": use a ReadWriteMany claim, or one replica with several "
                                 "processes"};
  }
  return {};
}

std::string WhatPodsWaitFor(const Observed& observed) {
  for (const PodView& pod : observed.pods) {
    if (pod.phase != PodPhase::kPending || pod.deleting || pod.waiting.empty()) continue;
    return "pod " + pod.name + ": " + pod.waiting;
  }
  return "";
}

void Conclude(const Observed& observed, WallTime now, OrderedJson& status) {
  Conclusion(observed, now, status).Draw();
}

}  // namespace everstep
