#include "operator/core/reconcile.h"

#include <algorithm>
#include <cmath>

#include "operator/api/names.h"
#include "operator/api/timestamp.h"
#include "operator/core/conclusion.h"
#include "operator/core/recovery.h"

namespace everstep {
namespace {

constexpr int64_t kCreateRetrySeconds = 10;
constexpr int64_t kVolumeLookSeconds = 5;
constexpr int64_t kSettleSeconds = 5;

bool Contains(const OrderedJson& list, const std::string& text) {
  return std::ranges::any_of(list, [&](const OrderedJson& entry) { return entry == text; });
}

// One run of Reconcile: the plan under construction and what it is made from.
class Reconciler {
 public:
  Reconciler(const Observed& observed, WallTime now)
      : observed_(observed), job_(observed.job), now_(now) {
    plan_.status = observed.status.is_object() ? observed.status : OrderedJson::object();
  }

  Plan Run() {
    Initialize();
    NoticeSilentEnd();
    if (IsTerminal(plan_.status)) {
      CleanUp();
      ExpireJob();
    } else if (status().contains("failure")) {
      End("Failed", status()["failure"].get<std::string>());
    } else if (status().contains("finished")) {
      Complete();
    } else if (job_.spec.suspend) {
      Suspend();
    } else if (!Resumed()) {
      plan_.reason = "is resumed, waits for the suspended pods to end";
    } else if (PastDeadline()) {
      End("Failed", "activeDeadlineSeconds (" + std::to_string(*job_.spec.active_deadline_seconds) +
                        ") have passed");
    } else if (const std::string late = PastStartupDeadline(); !late.empty()) {
      End("Failed", late);
    } else if (EnsureObjects()) {
      EnsurePods();
    }
    Conclude(observed_, now_, status());
    return std::move(plan_);
  }

 private:
  OrderedJson& status() { return plan_.status; }

  // What is decided once, at the job's first reconcile, and holds for its whole life: exactness
  // depends on it.
  void Initialize() {
    status()["observedGeneration"] = job_.generation;
    if (!status().contains("phase")) status()["phase"] = "Pending";
    if (!status().contains("startUnixSeconds")) StartCountingTime();
    if (!status().contains("logicalWorld")) status()["logicalWorld"] = job_.spec.world_size();
    if (!status().contains("threadsPerProcess")) {
      status()["threadsPerProcess"] =
          job_.spec.threads_per_process.value_or(observed_.default_threads);
    }
  }

  void StartCountingTime() {
    status()["startTime"] = FormatTime(now_);
    status()["startUnixSeconds"] = UnixSeconds(now_);
  }

  // A program that knows nothing of rendezvous is done when all its pods are.
  void NoticeSilentEnd() {
    if (status().contains("finished")) return;
    for (int replica = 0; replica < job_.spec.replicas; ++replica) {
      const PodView* pod = FindPod(replica, IncarnationOf(replica));
      if (pod == nullptr || pod->phase != PodPhase::kSucceeded || pod->deleting) return;
    }
    status()["finished"] = {{"step", StepOf("progress", 0)}};
  }

  int64_t StepOf(const char* key, int64_t none) {
    return status().contains(key) ? status()[key].value("step", none) : none;
  }

  // False: nothing to wait for. The earliest of several waits counts.
  bool Wait(int64_t seconds) {
    if (seconds <= 0) return false;
    const Duration wait = std::chrono::seconds(seconds);
    plan_.requeue_after = std::min(plan_.requeue_after.value_or(wait), wait);
    return true;
  }

  bool PastDeadline() {
    if (!job_.spec.active_deadline_seconds) return false;
    const int64_t end =
        status().value("startUnixSeconds", UnixSeconds(now_)) + *job_.spec.active_deadline_seconds;
    const int64_t left = end - UnixSeconds(now_);
    return !Wait(left);
  }

  // Why the job has not started training in time; "" while it may still.
  std::string PastStartupDeadline() {
    if (status().contains("attempt")) return "";
    const int deadline = job_.spec.health.startup_deadline_seconds;
    const int64_t left =
        status().value("startUnixSeconds", UnixSeconds(now_)) + deadline - UnixSeconds(now_);
    if (Wait(left)) return "";
    const std::string cause = WhatIsWaitedFor();
    return "training has not started within startupDeadlineSeconds (" + std::to_string(deadline) +
           ")" + (cause.empty() ? "" : ": " + cause);
  }

  std::string WhatIsWaitedFor() {
    const std::string volume = FindVolumeProblem(observed_).message;
    if (!volume.empty()) return volume;
    if (status().contains("createFailure")) return status()["createFailure"].value("message", "");
    return WhatPodsWaitFor(observed_);
  }

  PodContext Context() {
    PodContext context = observed_.pod_context;
    context.nodes = JudgeNodes(status(), job_.spec.recovery, UnixSeconds(now_));
    context.threads_per_process = status()["threadsPerProcess"].get<int>();
    context.first_start = !status().contains("attempt") && !status().contains("checkpoint");
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

  // False while pods would only hang: their volume cannot be mounted, or nothing can be created.
  bool EnsureObjects() {
    if (status().contains("createFailure")) {
      const int64_t at = status()["createFailure"].value("unixSeconds", int64_t{0});
      if (Wait(at + kCreateRetrySeconds - UnixSeconds(now_))) return false;
      status().erase("createFailure");
    }
    if (!FindVolumeProblem(observed_).reason.empty()) {
      plan_.reason = "waits for its volume";
      // Claims are not watched.
      Wait(kVolumeLookSeconds);
      return false;
    }
    if (!observed_.claim) plan_.actions.emplace_back(CreateObject{BuildClaim(job_)});
    if (!observed_.has_service) plan_.actions.emplace_back(CreateObject{BuildService(job_)});
    if (job_.spec.network_policy == "Isolated" && !observed_.has_network_policy) {
      plan_.actions.emplace_back(CreateObject{BuildNetworkPolicy(job_)});
    }
    if (!job_.spec.train.is_null() && !observed_.has_config_map) {
      plan_.actions.emplace_back(CreateObject{BuildTrainConfigMap(job_)});
    }
    return true;
  }

  void EnsurePods() {
    for (int replica = 0; replica < job_.spec.replicas && !IsTerminal(status()); ++replica) {
      EnsurePod(replica);
    }
  }

  void EnsurePod(int replica) {
    const int incarnation = IncarnationOf(replica);
    const PodView* pod = FindPod(replica, incarnation);
    if (pod == nullptr) {
      CreatePod(replica, incarnation + 1,
                incarnation < 0 ? "it does not exist yet" : "its pod is gone");
    } else if (IsLost(pod->name)) {
      ReplacePod(*pod, "is lost");
    } else if (pod->phase == PodPhase::kFailed) {
      if (!MayYetTurnOutDisrupted(*pod)) ReplacePod(*pod, "failed");
    } else if (IsStuck(*pod)) {
      ReplacePod(*pod, "does not end");
    }
    DeleteOlder(replica, IncarnationOf(replica));
  }

  bool IsLost(const std::string& pod) {
    if (!status().contains("lostPods")) return false;
    return Contains(status()["lostPods"], pod);
  }

  // Whatever ends a pod from outside kills its containers first and says so in its conditions a
  // moment later.
  bool MayYetTurnOutDisrupted(const PodView& pod) {
    constexpr int kKilled = 128 + 9, kTerminated = 128 + 15;
    if (pod.disrupted || pod.deleting || IsCharged(pod) || !pod.ended_unix_seconds) return false;
    if (pod.exit_code != kKilled && pod.exit_code != kTerminated) return false;
    return Wait(*pod.ended_unix_seconds + kSettleSeconds - UnixSeconds(now_));
  }

  // Its node no longer answers: the object stays until somebody removes it by force. One that never
  // ran has nothing to save.
  bool IsStuck(const PodView& pod) {
    if (!pod.deleting) return false;
    if (pod.phase == PodPhase::kPending) return true;
    if (!pod.gone_by_unix_seconds) return false;
    const int patience = job_.spec.health.stuck_terminating_seconds;
    return !Wait(*pod.gone_by_unix_seconds + patience - UnixSeconds(now_));
  }

  void CreatePod(int replica, int incarnation, const std::string& why) {
    const std::string name = names::Pod(job_.name, replica, incarnation);
    if (Wait(BackoffLeft(replica))) {
      plan_.reason = "waits before it creates pod " + name;
      return;
    }
    OrderedJson& list = status()["incarnations"];
    if (!list.is_array()) list = OrderedJson::array();
    while (list.size() <= static_cast<size_t>(replica)) list.push_back(0);
    list[static_cast<size_t>(replica)] = incarnation;
    ForgetLost(replica);
    plan_.actions.emplace_back(FenceReplica{replica, incarnation});
    plan_.actions.emplace_back(CreateObject{BuildPod(job_, replica, incarnation, Context())});
    plan_.reason = "creates pod " + name + ": " + why;
  }

  int64_t BackoffLeft(int replica) {
    const std::string key = std::to_string(replica);
    if (!status().contains("notBefore")) return 0;
    const int64_t left = status()["notBefore"].value(key, int64_t{0}) - UnixSeconds(now_);
    if (left <= 0) status()["notBefore"].erase(key);
    if (status()["notBefore"].empty()) status().erase("notBefore");
    return left;
  }

  // Of its incarnations up to the newest one seen.
  void ForgetLost(int replica) {
    if (!status().contains("lostPods")) return;
    OrderedJson kept = OrderedJson::array();
    for (const OrderedJson& pod : status()["lostPods"]) {
      const auto name = pod.get<std::string>();
      if (!name.starts_with(names::HostName(job_.name, replica) + "-")) kept.push_back(pod);
    }
    status().erase("lostPods");
    if (!kept.empty()) status()["lostPods"] = kept;
  }

  // The fast loop charges a process's death; here only a pod's end is charged that the fast loop
  // had no part in. Somebody who deletes a pod is not to be charged either.
  void ReplacePod(const PodView& pod, const std::string& why) {
    if (!IsCharged(pod) && !pod.deleting && !pod.disrupted) {
      const RecoveryPlan recovery = Charge(pod);
      status()["restarts"] = recovery.history.ToJson();
      MarkPodCharged(status(), pod.name, pod.replica,
                     UnixSeconds(now_) + static_cast<int64_t>(std::ceil(recovery.delay_seconds)));
      if (recovery.action == RecoveryAction::kFail) {
        return End("Failed", recovery.reason + (pod.message.empty() ? "" : ": " + pod.message));
      }
    }
    CreatePod(pod.replica, pod.incarnation + 1, "pod " + pod.name + " " + why);
  }

  bool IsCharged(const PodView& pod) {
    return status().contains("chargedPods") &&
           status()["chargedPods"].value(std::to_string(pod.replica), "") == pod.name;
  }

  RecoveryPlan Charge(const PodView& pod) {
    Failure failure;
    failure.rank = pod.replica * job_.spec.processes_per_replica;
    failure.pod_alive = false;
    failure.regrouped = status().value("regroupedGeneration", uint64_t{0});
    failure.exited = pod.phase == PodPhase::kFailed && pod.exit_code > 0;
    failure.exit_code = pod.exit_code;
    failure.step = StepOf("progress", 0);
    failure.durable_step = StepOf("checkpoint", -1);
    const auto history = RecoveryHistory::FromJson(status().value("restarts", OrderedJson()));
    return PlanRecovery(job_.spec.recovery, history, failure, UnixSeconds(now_));
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
    End("Succeeded", "all " + std::to_string(StepOf("finished", 0)) + " steps are done");
  }

  // True when `seconds` have passed since the first call for this key.
  bool OverDue(const char* key, int64_t seconds) {
    if (!status().contains(key)) status()[key] = UnixSeconds(now_);
    const int64_t left = status()[key].get<int64_t>() + seconds - UnixSeconds(now_);
    return !Wait(left);
  }

  void Suspend() {
    status()["phase"] = "Suspended";
    const bool all_told =
        std::ranges::all_of(observed_.pods, [](const PodView& pod) { return pod.deleting; });
    if (all_told) return;
    if (AnyPodAlive()) plan_.actions.emplace_back(StopProcesses{30, "the job is suspended"});
    for (const PodView& pod : observed_.pods) {
      if (!pod.deleting) plan_.actions.emplace_back(DeletePod{pod.name});
    }
    plan_.reason = "suspends";
  }

  void ExpireJob() {
    if (!job_.spec.ttl_seconds_after_finished) return;
    const int64_t end = status().value("completionUnixSeconds", UnixSeconds(now_)) +
                        *job_.spec.ttl_seconds_after_finished;
    if (!Wait(end - UnixSeconds(now_))) plan_.actions.emplace_back(DeleteJob{});
  }

  // False while pods from before the suspension are still there. The time of a resumed job counts
  // from its resumption.
  bool Resumed() {
    if (status()["phase"] != "Suspended") return true;
    if (AnyPodAlive()) return false;
    status()["phase"] = "Pending";
    StartCountingTime();
    return true;
  }

  void End(const std::string& phase, const std::string& message) {
    status()["phase"] = phase;
    status()["message"] = message;
    status()["completionTime"] = FormatTime(now_);
    status()["completionUnixSeconds"] = UnixSeconds(now_);
    plan_.reason = phase + ": " + message;
    // Pods that are kept shall not train on.
    if (job_.spec.clean_pod_policy == "None" && AnyPodAlive()) {
      plan_.actions.emplace_back(StopProcesses{30, message});
    }
    CleanUp();
    ExpireJob();
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

void MarkCreateFailed(OrderedJson& status, const std::string& message, bool quota,
                      int64_t now_unix_seconds) {
  status["createFailure"] = {
      {"message", message}, {"quota", quota}, {"unixSeconds", now_unix_seconds}};
}

void MarkPodLost(OrderedJson& status, const std::string& pod) {
  OrderedJson& lost = status["lostPods"];
  if (!lost.is_array()) lost = OrderedJson::array();
  if (!Contains(lost, pod)) lost.push_back(pod);
}

void MarkPodCharged(OrderedJson& status, const std::string& pod, int replica,
                    int64_t unix_seconds) {
  status["chargedPods"][std::to_string(replica)] = pod;
  status["notBefore"][std::to_string(replica)] = unix_seconds;
}

Plan Reconcile(const Observed& observed, WallTime now) { return Reconciler(observed, now).Run(); }

}  // namespace everstep
