#include "operator/core/reconcile.h"

#include <algorithm>

#include "operator/api/conditions.h"
#include "operator/api/names.h"
#include "operator/core/recovery.h"

namespace everstep {
namespace {

int64_t UnixSeconds(WallTime time) { return std::chrono::system_clock::to_time_t(time); }

// One run of Reconcile: the plan under construction and what it is made from.
class Reconciler {
 public:
  Reconciler(const Observed& observed, WallTime now)
      : observed_(observed), job_(observed.job), now_(now) {
    plan_.status = observed.status.is_object() ? observed.status : OrderedJson::object();
  }

  Plan Run() {
    Initialize();
    if (IsTerminal(plan_.status)) {
      CleanUp();
    } else if (status().contains("failure")) {
      End("Failed", status()["failure"].get<std::string>());
    } else if (status().contains("finished")) {
      Complete();
    } else if (PastDeadline()) {
      End("Failed", "activeDeadlineSeconds (" + std::to_string(*job_.spec.active_deadline_seconds) +
                        ") have passed");
    } else if (job_.spec.suspend) {
      Suspend();
    } else {
      EnsureObjects();
      EnsurePods();
    }
    Summarize();
    return std::move(plan_);
  }

 private:
  OrderedJson& status() { return plan_.status; }

  // What is decided once, at the job's first reconcile, and holds for its whole life: exactness
  // depends on it.
  void Initialize() {
    status()["observedGeneration"] = job_.generation;
    if (!status().contains("phase")) {
      status()["phase"] = "Pending";
      status()["startTime"] = FormatTime(now_);
      status()["startUnixSeconds"] = UnixSeconds(now_);
    }
    if (!status().contains("logicalWorld")) status()["logicalWorld"] = job_.spec.world_size();
    if (!status().contains("threadsPerProcess")) {
      status()["threadsPerProcess"] =
          job_.spec.threads_per_process.value_or(observed_.default_threads);
    }
  }

  bool PastDeadline() {
    if (!job_.spec.active_deadline_seconds) return false;
    const int64_t end =
        status().value("startUnixSeconds", UnixSeconds(now_)) + *job_.spec.active_deadline_seconds;
    const int64_t left = end - UnixSeconds(now_);
    if (left > 0) plan_.requeue_after = std::chrono::seconds(left);
    return left <= 0;
  }

  PodContext Context() {
    PodContext context;
    context.rendezvous = observed_.rendezvous;
    context.token = observed_.token;
    context.threads_per_process = status()["threadsPerProcess"].get<int>();
    context.first_start = !status().contains("attempt") && !status().contains("checkpoint");
    context.master_incarnation = std::max(0, IncarnationOf(0));
    return context;
  }

  // Newest incarnation of the replica that ever existed, or -1.
  int IncarnationOf(int replica) const {
    int newest = -1;
    if (plan_.status.contains("incarnations")) {
      const OrderedJson& list = plan_.status["incarnations"];
      if (static_cast<size_t>(replica) < list.size()) newest = list[static_cast<size_t>(replica)];
    }
    for (const PodView& pod : observed_.pods) {
      if (pod.replica == replica) newest = std::max(newest, pod.incarnation);
    }
    return newest;
  }

  const PodView* FindPod(int replica, int incarnation) const {
    for (const PodView& pod : observed_.pods) {
      if (pod.replica == replica && pod.incarnation == incarnation) return &pod;
    }
    return nullptr;
  }

  void EnsureObjects() {
    if (!observed_.has_service) plan_.actions.emplace_back(CreateObject{BuildService(job_)});
    if (!job_.spec.train.is_null() && !observed_.has_config_map) {
      plan_.actions.emplace_back(CreateObject{BuildTrainConfigMap(job_)});
    }
  }

  void EnsurePods() {
    const PodContext context = Context();
    for (int replica = 0; replica < job_.spec.replicas; ++replica) {
      const int incarnation = IncarnationOf(replica);
      const PodView* pod = FindPod(replica, incarnation);
      if (pod == nullptr) {
        CreatePod(replica, incarnation + 1, context,
                  incarnation < 0 ? "it does not exist yet" : "its pod is gone");
      } else if (pod->phase == PodPhase::kFailed) {
        if (!ReplaceFailedPod(*pod, context)) return;
      }
      DeleteOlder(replica, std::max(incarnation, 0));
    }
    if (status()["phase"] == "Suspended") status()["phase"] = "Pending";
  }

  void CreatePod(int replica, int incarnation, const PodContext& context, const std::string& why) {
    OrderedJson& list = status()["incarnations"];
    if (!list.is_array()) list = OrderedJson::array();
    while (list.size() <= static_cast<size_t>(replica)) list.push_back(0);
    list[static_cast<size_t>(replica)] = incarnation;
    plan_.actions.emplace_back(FenceReplica{replica, incarnation});
    plan_.actions.emplace_back(CreateObject{BuildPod(job_, replica, incarnation, context)});
    plan_.reason = "creates pod " + names::Pod(job_.name, replica, incarnation) + ": " + why;
  }

  // False when the job has failed over it. The fast loop charges a process's death; here only a
  // pod's end is charged that the fast loop had no part in (it is told by `charged`).
  bool ReplaceFailedPod(const PodView& pod, const PodContext& context) {
    const auto history = RecoveryHistory::FromJson(status().value("restarts", OrderedJson()));
    const std::string key = pod.name;
    if (status().value("lastChargedPod", "") != key) {
      Failure failure;
      failure.rank = pod.replica * job_.spec.processes_per_replica;
      failure.pod_alive = false;
      failure.regrouped = status().value("regroupedGeneration", uint64_t{0});
      failure.exited = pod.exit_code > 0;
      failure.exit_code = pod.exit_code;
      failure.step = status().contains("progress") ? status()["progress"].value("step", 0) : 0;
      failure.durable_step =
          status().contains("checkpoint") ? status()["checkpoint"].value("step", -1) : -1;
      const RecoveryPlan recovery =
          PlanRecovery(job_.spec.recovery, history, failure, UnixSeconds(now_));
      status()["restarts"] = recovery.history.ToJson();
      status()["lastChargedPod"] = key;
      if (recovery.action == RecoveryAction::kFail) {
        End("Failed", recovery.reason + (pod.message.empty() ? "" : ": " + pod.message));
        return false;
      }
    }
    CreatePod(pod.replica, pod.incarnation + 1, context, "pod " + pod.name + " failed");
    return true;
  }

  void DeleteOlder(int replica, int incarnation) {
    for (const PodView& pod : observed_.pods) {
      const bool ended = pod.phase == PodPhase::kSucceeded || pod.phase == PodPhase::kFailed;
      if (pod.replica == replica && pod.incarnation < incarnation && !pod.deleting && !ended) {
        plan_.actions.emplace_back(DeletePod{pod.name});
      }
    }
  }

  bool AnyPodAlive() const {
    return std::ranges::any_of(observed_.pods, [](const PodView& pod) {
      return pod.phase == PodPhase::kPending || pod.phase == PodPhase::kRunning;
    });
  }

  void Complete() {
    // The processes leave on their own once they have said so.
    if (AnyPodAlive() && !OverDue("finishedUnixSeconds", 30)) {
      plan_.reason = "training is done, waits for the pods to end";
      return;
    }
    End("Succeeded",
        "all " + std::to_string(status()["finished"].value("step", 0)) + " steps are done");
  }

  // True when `seconds` have passed since the first call for this key.
  bool OverDue(const char* key, int64_t seconds) {
    if (!status().contains(key)) status()[key] = UnixSeconds(now_);
    const int64_t left = status()[key].get<int64_t>() + seconds - UnixSeconds(now_);
    if (left > 0) plan_.requeue_after = std::chrono::seconds(left);
    return left <= 0;
  }

  void Suspend() {
    status()["phase"] = "Suspended";
    if (!AnyPodAlive()) return;
    plan_.actions.emplace_back(StopProcesses{30, "the job is suspended"});
    for (const PodView& pod : observed_.pods) {
      if (!pod.deleting) plan_.actions.emplace_back(DeletePod{pod.name});
    }
    plan_.reason = "suspends";
  }

  void End(const std::string& phase, const std::string& message) {
    status()["phase"] = phase;
    status()["message"] = message;
    status()["completionTime"] = FormatTime(now_);
    plan_.reason = phase + ": " + message;
    CleanUp();
  }

  void CleanUp() {
    if (job_.spec.clean_pod_policy == "None") return;
    for (const PodView& pod : observed_.pods) {
      const bool alive = pod.phase == PodPhase::kPending || pod.phase == PodPhase::kRunning;
      if (!pod.deleting && (alive || job_.spec.clean_pod_policy == "All")) {
        plan_.actions.emplace_back(DeletePod{pod.name});
      }
    }
  }

  // Conditions and counts follow from the phase.
  void Summarize() {
    int running = 0;
    for (const PodView& pod : observed_.pods) running += pod.phase == PodPhase::kRunning ? 1 : 0;
    status()["replicaStatuses"] = {{"desired", job_.spec.replicas}, {"running", running}};
    const auto phase = status()["phase"].get<std::string>();
    const std::string message = status().value("message", "");
    const auto set = [&](const char* type, bool value) {
      SetCondition(status(), {type, value, value ? phase : "Not" + std::string(type), message},
                   job_.generation, now_);
    };
    set("Running", phase == "Running");
    set("Recovering", phase == "Recovering");
    set("Suspended", phase == "Suspended");
    set("Succeeded", phase == "Succeeded");
    set("Failed", phase == "Failed");
    set("Ready", phase == "Running" || phase == "Succeeded");
    set("Reconciling", phase == "Pending" || phase == "Recovering");
    set("Stalled", phase == "Failed");
  }

  const Observed& observed_;
  const TrainingJob& job_;
  const WallTime now_;
  Plan plan_;
};

}  // namespace

bool IsTerminal(const OrderedJson& status) {
  if (!status.is_object() || !status.contains("phase")) return false;
  return status["phase"] == "Succeeded" || status["phase"] == "Failed";
}

Plan Reconcile(const Observed& observed, WallTime now) { return Reconciler(observed, now).Run(); }

}  // namespace everstep
