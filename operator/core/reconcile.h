// The slow loop's decision: from what is observed of one job to what is to be done. Pure: no I/O,
// no threads, no clock. Whether the objects live in Kubernetes or in this process it cannot tell.
#ifndef EVERSTEP_OPERATOR_CORE_RECONCILE_H_
#define EVERSTEP_OPERATOR_CORE_RECONCILE_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "operator/api/training_job.h"
#include "operator/core/pod_builder.h"

namespace everstep {

enum class PodPhase { kPending, kRunning, kSucceeded, kFailed };

struct PodView {
  std::string name;
  int replica = 0;
  int incarnation = 0;
  PodPhase phase = PodPhase::kPending;
  bool deleting = false;
  // deleting: when its grace is over, by the pod's own clock.
  std::optional<int64_t> gone_by_unix_seconds;
  int exit_code = 0;                          // kFailed
  std::string message;                        // kFailed: why
  std::optional<int64_t> ended_unix_seconds;  // kFailed
  // Evicted, preempted or drained (condition DisruptionTarget): nobody's fault.
  bool disrupted = false;
  std::string node;  // "" until it is scheduled
  std::string
      waiting;  // kPending: for what, "ImagePullBackOff: ..."; "" nothing out of the ordinary
};

struct ClaimView {
  bool one_node_only = false;  // neither ReadWriteMany nor ReadOnlyMany
};

struct Observed {
  TrainingJob job;
  OrderedJson status;  // as stored; null before the first reconcile
  std::vector<PodView> pods;
  bool has_config_map = false;
  bool has_service = false;
  bool has_network_policy = false;
  std::optional<ClaimView> claim;
  // What pods have to know; the job's own part is filled in here.
  PodContext pod_context;
  int default_threads = 1;  // per process, when the spec does not say
};

struct CreateObject {
  OrderedJson object;
};
struct DeletePod {
  std::string name;
};
// The TrainingJob itself; what it owns goes with it.
struct DeleteJob {};
// From now on only this incarnation of the replica may connect to rendezvous.
struct FenceReplica {
  int replica = 0;
  int incarnation = 0;
};
// All processes save a checkpoint and exit.
struct StopProcesses {
  double grace_seconds = 30;
  std::string reason;
};
using PlannedAction = std::variant<CreateObject, DeletePod, DeleteJob, FenceReplica, StopProcesses>;

struct Plan {
  std::vector<PlannedAction> actions;  // in this order
  OrderedJson status;                  // to be written before the actions, if it differs
  std::optional<Duration> requeue_after;
  std::string reason;
};

Plan Reconcile(const Observed& observed, WallTime now);

// True for Succeeded and Failed.
bool IsTerminal(const OrderedJson& status);

// What the executor leaves in status when an object could not be created: the next look waits a
// moment, and says so. `quota`: for want of quota.
void MarkCreateFailed(OrderedJson& status, const std::string& message, bool quota,
                      int64_t now_unix_seconds);

// What the fast loop leaves in status for the slow one:
// the pod is lost (its supervisor fell silent) though its object may look alive;
void MarkPodLost(OrderedJson& status, const std::string& pod);
// the pod was replaced after a failure that is charged already, and not before `unix_seconds`.
void MarkPodCharged(OrderedJson& status, const std::string& pod, int replica, int64_t unix_seconds);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CORE_RECONCILE_H_
