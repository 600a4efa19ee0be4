// The ladder: what to do about a dead rank. A pure function of the policy, what happened before and
// what happened now; it returns its reason.
#ifndef EVERSTEP_OPERATOR_CORE_RECOVERY_H_
#define EVERSTEP_OPERATOR_CORE_RECOVERY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/json.h"
#include "operator/api/training_job.h"

namespace everstep {

// What is remembered of earlier failures; part of status.restarts.
struct RecoveryHistory {
  std::vector<int64_t> charged_unix_seconds;  // restarts that count, oldest first
  int64_t last_step = -1;                     // completed steps at the last failure
  uint64_t last_regrouped = 0;                // Failure::regrouped then
  // Attempts in a row that failed in that step: generations that broke in it, or the failures of
  // the rank that failed most often (one that dies before it joins breaks no generation).
  int no_progress = 0;
  std::map<int, int> failures_in_step;
  // Per rank: restarts in place since training last got on with it.
  std::map<int, int> in_place_in_a_row;
  int64_t total = 0;
  int64_t in_place = 0;
  int64_t recreated = 0;

  OrderedJson ToJson() const;
  static RecoveryHistory FromJson(const OrderedJson& json);
};

struct Failure {
  int rank = -1;
  // The process died while its pod lives; else the pod (or its node) is gone.
  bool pod_alive = true;
  // It follows from another rank's death: it gets a new process and is charged to nobody.
  bool victim = false;
  // It had become a member of a generation. One that never does shall not live on the progress that
  // the others make.
  bool joined = true;
  // Newest generation that had regrouped. Members that die while it stays the same (all ranks
  // killed at once) end one attempt at the step, not several.
  uint64_t regrouped = 0;
  bool exited = false;  // by itself, with exit_code; else by a signal or silently
  int exit_code = 0;
  int64_t step = 0;          // completed steps
  int64_t durable_step = 0;  // of the newest checkpoint; -1 none
};

enum class RecoveryAction { kRestartInPlace, kReplacePod, kFail };

struct RecoveryPlan {
  RecoveryAction action = RecoveryAction::kRestartInPlace;
  double delay_seconds = 0;
  std::string reason;  // "rank 2 is restarted in place (restart 3 of 10 within 6:00:00)"
  RecoveryHistory history;
};

RecoveryPlan PlanRecovery(const RecoverySpec& policy, const RecoveryHistory& history,
                          const Failure& failure, int64_t now_unix_seconds);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CORE_RECOVERY_H_
