#include "operator/core/recovery.h"

#include <algorithm>
#include <cmath>

#include "common/strings.h"

namespace everstep {
namespace {

// Drops what has left the window, and what training has made good since: a checkpoint past the
// last failure refunds every charge.
void Refund(const RecoverySpec& policy, const Failure& failure, int64_t now,
            RecoveryHistory& history) {
  std::erase_if(history.charged_unix_seconds,
                [&](int64_t at) { return at <= now - policy.window_seconds; });
  if (failure.durable_step > history.last_step) history.charged_unix_seconds.clear();
}

void CountProgress(const Failure& failure, RecoveryHistory& history) {
  if (failure.step > history.last_step) {
    history.no_progress = 1;
    history.failures_in_step = {{failure.rank, 1}};
    std::erase_if(history.in_place_in_a_row,
                  [&](const auto& entry) { return failure.joined || entry.first != failure.rank; });
  } else {
    if (failure.regrouped > history.last_regrouped) ++history.no_progress;
    const int own = ++history.failures_in_step[failure.rank];
    history.no_progress = std::max(history.no_progress, own);
  }
  history.last_step = failure.step;
  history.last_regrouped = std::max(history.last_regrouped, failure.regrouped);
}

double Backoff(const RecoverySpec& policy, int failures_in_a_row) {
  // The first restart is immediate; each further one without progress waits twice as long.
  if (failures_in_a_row <= 1) return 0;
  const double factor = std::pow(2.0, std::min(failures_in_a_row - 2, 30));
  return std::min(policy.backoff_max_seconds, policy.backoff_initial_seconds * factor);
}

OrderedJson CountsToJson(const std::map<int, int>& counts) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [rank, count] : counts) json[std::to_string(rank)] = count;
  return json;
}

std::map<int, int> CountsFromJson(const OrderedJson& json, const char* key) {
  std::map<int, int> counts;
  if (!json.contains(key)) return counts;
  for (const auto& [rank, count] : json[key].items()) counts[std::stoi(rank)] = count.get<int>();
  return counts;
}

RecoveryPlan Fail(RecoveryHistory history, std::string reason) {
  return {RecoveryAction::kFail, 0, std::move(reason), std::move(history)};
}

}  // namespace

OrderedJson RecoveryHistory::ToJson() const {
  return {{"total", total},
          {"inPlace", in_place},
          {"recreated", recreated},
          {"inWindow", charged_unix_seconds.size()},
          {"chargedAt", charged_unix_seconds},
          {"lastStep", last_step},
          {"lastRegrouped", last_regrouped},
          {"noProgress", no_progress},
          {"failuresInStep", CountsToJson(failures_in_step)},
          {"inPlaceInARow", CountsToJson(in_place_in_a_row)}};
}

RecoveryHistory RecoveryHistory::FromJson(const OrderedJson& json) {
  RecoveryHistory history;
  if (!json.is_object()) return history;
  history.total = json.value("total", int64_t{0});
  history.in_place = json.value("inPlace", int64_t{0});
  history.recreated = json.value("recreated", int64_t{0});
  history.charged_unix_seconds = json.value("chargedAt", std::vector<int64_t>{});
  history.last_step = json.value("lastStep", int64_t{-1});
  history.last_regrouped = json.value("lastRegrouped", uint64_t{0});
  history.no_progress = json.value("noProgress", 0);
  history.failures_in_step = CountsFromJson(json, "failuresInStep");
  history.in_place_in_a_row = CountsFromJson(json, "inPlaceInARow");
  return history;
}

RecoveryPlan PlanRecovery(const RecoverySpec& policy, const RecoveryHistory& before,
                          const Failure& failure, int64_t now) {
  const std::string who = "rank " + std::to_string(failure.rank);
  RecoveryHistory history = before;
  if (failure.victim) {
    return {failure.pod_alive ? RecoveryAction::kRestartInPlace : RecoveryAction::kReplacePod, 0,
            who + " followed another rank's failure: it gets a new process, not charged",
            std::move(history)};
  }
  if (failure.exited && std::ranges::find(policy.fatal_exit_codes, failure.exit_code) !=
                            policy.fatal_exit_codes.end()) {
    return Fail(std::move(history), who + " exited with code " + std::to_string(failure.exit_code) +
                                        ", which a restart does not cure");
  }
  Refund(policy, failure, now, history);
  CountProgress(failure, history);
  if (history.no_progress > policy.max_no_progress) {
    return Fail(std::move(history), "step " + std::to_string(failure.step + 1) + " failed " +
                                        std::to_string(history.no_progress) + " times in a row (" +
                                        who + " last)");
  }
  history.charged_unix_seconds.push_back(now);
  const auto charged = static_cast<int>(history.charged_unix_seconds.size());
  if (charged > policy.max_restarts) {
    return Fail(std::move(history), "more than " + std::to_string(policy.max_restarts) +
                                        " restarts within " +
                                        FormatDuration(policy.window_seconds) +
                                        " without a checkpoint between: raise "
                                        "spec.recovery.maxRestarts or find the cause");
  }
  ++history.total;
  const std::string budget = "(restart " + std::to_string(charged) + " of " +
                             std::to_string(policy.max_restarts) + " within " +
                             FormatDuration(policy.window_seconds) + ")";
  int& in_place = history.in_place_in_a_row[failure.rank];
  const double delay = Backoff(policy, std::max(history.no_progress, in_place + 1));
  if (failure.pod_alive && in_place < policy.in_place_before_recreate) {
    ++in_place;
    ++history.in_place;
    return {RecoveryAction::kRestartInPlace, delay, who + " is restarted in place " + budget,
            std::move(history)};
  }
  in_place = 0;
  ++history.recreated;
  const std::string why = failure.pod_alive ? " kept failing in place: its pod is replaced "
                                            : " lost its pod: it is replaced ";
  return {RecoveryAction::kReplacePod, delay, who + why + budget, std::move(history)};
}

}  // namespace everstep
