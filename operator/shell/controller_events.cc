// What the controller does with the fast loop's events: writes their facts to status, and answers
// its one question.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <memory>

#include "common/log.h"
#include "common/strings.h"
#include "operator/api/names.h"
#include "operator/api/timestamp.h"
#include "operator/core/goodput.h"
#include "operator/core/recovery.h"
#include "operator/shell/controller.h"
#include "operator/shell/incident_json.h"
#include "operator/shell/observation.h"

namespace everstep {
namespace {

constexpr size_t kIncidentsKept = 10;
constexpr std::chrono::seconds kProgressInterval{1};

// The last line that a dead process wrote, to end a reason with. It comes a moment after the news
// of its death: until then, what was written before its last death has to do.
std::string LastLine(const Incident& incident, const OrderedJson& status) {
  std::string words = incident.last_words;
  if (words.empty() && status.contains("incidents")) {
    for (const OrderedJson& earlier : status["incidents"]) {
      words = earlier.value("lastWords", "");
      if (!words.empty()) break;
    }
  }
  const std::string_view trimmed = Trim(words);
  if (trimmed.empty()) return "";
  return ": " + std::string(trimmed.substr(trimmed.rfind('\n') + 1));
}

std::string PodOfRank(const TrainingJob& job, const OrderedJson& status, int rank) {
  const int replica = rank / job.spec.processes_per_replica;
  const OrderedJson incarnations = status.value("incarnations", OrderedJson::array());
  const auto at = static_cast<size_t>(replica);
  return names::Pod(job.name, replica, at < incarnations.size() ? incarnations[at].get<int>() : 0);
}

// What a death costs, written into the job's status.
RecoveryPlan ChargeFailure(const RecoverySpec& policy, Failure failure, const Incident& incident,
                           int64_t now_unix_seconds, OrderedJson& status) {
  failure.regrouped = status.value("regroupedGeneration", uint64_t{0});
  failure.durable_step =
      status.contains("checkpoint") ? status["checkpoint"].value("step", int64_t{-1}) : -1;
  const RecoveryPlan plan =
      PlanRecovery(policy, RecoveryHistory::FromJson(status.value("restarts", OrderedJson())),
                   failure, now_unix_seconds);
  status["restarts"] = plan.history.ToJson();
  // A program that exits has its own reasons; one that is killed or hangs may have the node's.
  if (!failure.victim && !failure.exited) StrikeNode(status, incident.node, now_unix_seconds);
  if (plan.action == RecoveryAction::kFail) {
    status["failure"] = plan.reason + LastLine(incident, status);
  } else if (plan.action == RecoveryAction::kReplacePod) {
    MarkPodCharged(status, incident.pod, incident.replica,
                   now_unix_seconds + static_cast<int64_t>(std::ceil(plan.delay_seconds)));
  }
  return plan;
}

}  // namespace

void Controller::PersistMembership(const std::string& job, const wire::Membership& membership,
                                   std::function<void(Status)> done) {
  OrderedJson members = OrderedJson::array();
  for (const wire::Member& member : membership.members) members.push_back(member.rank);
  const OrderedJson attempt = {{"generation", membership.generation},
                               {"worldSize", membership.members.size()},
                               {"members", members}};
  const auto stale = std::make_shared<bool>(false);
  const auto change = [=](OrderedJson& status) {
    const uint64_t known =
        status.contains("attempt") ? status["attempt"].value("generation", uint64_t{0}) : 0;
    *stale = known >= membership.generation;
    if (!*stale) status["attempt"] = attempt;
    return !*stale;
  };
  writer_.Post(job, change, [=, done = std::move(done)](const Status& written) {
    if (written && *stale) {
      return done(MakeError(ErrorCode::kConflict, "status holds a newer generation already"));
    }
    done(written);
  });
}

void Controller::OnProcessDied(const std::string& job, const Incident& incident, int rank,
                               bool victim, std::function<void(RecoveryDecision)> decide) {
  using Kind = RecoveryDecision::Kind;
  OrderedJson status;
  const auto object = ReadJob(job, &status);
  if (!object) return decide({Kind::kWait, {}, object.error().message});
  if (object->spec.suspend || IsTerminal(status) || status.contains("finished")) {
    return decide({Kind::kWait, {}, "the job is ending: nothing to do"});
  }
  // A victim's own pod may be well: the incident is the other one's.
  const bool gone =
      incident.cause == IncidentCause::kVanished || incident.cause == IncidentCause::kReplaced;
  if (gone && !victim) return decide(OnPodGone(job, incident));
  const std::string name = victim ? PodOfRank(*object, status, rank) : incident.pod;
  const auto pod = objects_.Get("Pod", KeyBeside(job, name));
  if (!pod || IsBeingTakenAway(*pod)) {
    return decide({Kind::kReplacePod, {}, "its pod is being deleted: a new one takes its place"});
  }
  Failure failure;
  failure.rank = rank;
  failure.victim = victim || StoppedWithAnother(job, incident);
  failure.joined = incident.was_member;
  failure.exited = incident.cause == IncidentCause::kExited;
  failure.exit_code = incident.exit_code;
  failure.step = incident.interrupted_step;
  // What it decides is known when it is written.
  const auto plan = std::make_shared<RecoveryPlan>();
  const int64_t now = UnixSeconds(clock_.WallNow());
  const auto change = [=, policy = object->spec.recovery](OrderedJson& current) {
    *plan = ChargeFailure(policy, failure, incident, now, current);
    return true;
  };
  writer_.Post(job, change, [=, this, decide = std::move(decide)](const Status& written) {
    if (!written) return decide({Kind::kWait, {}, written.error().message});
    decide(CarryOut(job, incident, *plan));
  });
}

// A process that is told to end takes the others along: they save a checkpoint together. Those
// whose own pods stay follow from it.
bool Controller::StoppedWithAnother(const std::string& job, const Incident& incident) {
  constexpr int kStopped = 128 + SIGTERM;
  if (incident.cause != IncidentCause::kExited || incident.exit_code != kStopped) return false;
  const auto pods = objects_.ListOf("Pod", job);
  return pods && std::ranges::any_of(*pods, IsBeingTakenAway);
}

RecoveryDecision Controller::CarryOut(const std::string& job, const Incident& incident,
                                      const RecoveryPlan& plan) {
  using Kind = RecoveryDecision::Kind;
  const Duration delay =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(plan.delay_seconds));
  switch (plan.action) {
    case RecoveryAction::kRestartInPlace:
      return {Kind::kRestartInPlace, delay, plan.reason};
    case RecoveryAction::kReplacePod:
      if (const Status deleted = objects_.Delete("Pod", KeyBeside(job, incident.pod)); !deleted) {
        LogWarning(deleted.error().message, {{"job", job}});
      }
      return {Kind::kReplacePod, delay, plan.reason};
    case RecoveryAction::kFail:
      return {Kind::kFail, {}, plan.reason};
  }
  return {};
}

// The slow loop makes a new pod at once, also where the old one's object still looks alive: it is
// fenced, so two of them do no harm.
RecoveryDecision Controller::OnPodGone(const std::string& job, const Incident& incident) {
  const int64_t now = UnixSeconds(clock_.WallNow());
  writer_.Post(job, [=](OrderedJson& status) {
    const auto replica = static_cast<size_t>(incident.replica);
    const bool newest = status.contains("incarnations") &&
                        replica < status["incarnations"].size() &&
                        status["incarnations"][replica] == incident.incarnation;
    if (newest && incident.cause == IncidentCause::kVanished) {
      MarkPodLost(status, incident.pod);
      StrikeNode(status, incident.node, now);
    }
    return true;
  });
  queue_->Add(job);
  return {RecoveryDecision::Kind::kReplacePod, {}, "its pod is gone: a new one takes its place"};
}

void Controller::OnIncidentUpdated(const std::string& job, const Incident& incident) {
  const std::string now = FormatTime(clock_.WallNow());
  writer_.Post(job, [=](OrderedJson& status) {
    OrderedJson& list = status["incidents"];
    if (!list.is_array()) list = OrderedJson::array();
    OrderedJson entry = IncidentToJson(incident);
    for (OrderedJson& known : list) {
      const bool same = known.value("id", uint64_t{0}) == incident.id &&
                        known.value("generation", uint64_t{0}) == incident.generation_before &&
                        known.value("rank", -1) == incident.rank;
      if (!same) continue;
      entry["at"] = known["at"];
      known = entry;
      return true;
    }
    entry["at"] = now;
    list.insert(list.begin(), entry);
    if (list.size() > kIncidentsKept) list.erase(list.size() - 1);
    return true;
  });
  observer_.OnIncident(job, incident);
}

void Controller::OnMembership(const std::string& job, const wire::Membership& membership,
                              const std::string& reason) {
  observer_.OnMembership(job, membership, reason);
}

void Controller::OnRegrouped(const std::string& job, uint64_t generation, int64_t step) {
  (void)step;
  writer_.Post(job, [=](OrderedJson& status) {
    if (IsTerminal(status) || status.value("phase", "") == "Suspended") return false;
    status["regroupedGeneration"] = generation;
    const int64_t members =
        status.contains("attempt") ? status["attempt"].value("worldSize", int64_t{0}) : 0;
    status["phase"] =
        members == status.value("logicalWorld", int64_t{0}) ? "Running" : "Recovering";
    return true;
  });
}

void Controller::OnProgress(const std::string& job, const wire::Progress& progress) {
  observer_.OnProgress(job, progress);
  {
    const std::lock_guard lock(mutex_);
    TimePoint& last = progress_written_[job];
    const bool done = progress.step == progress.total_steps;
    if (!done && clock_.Now() - last < kProgressInterval) return;
    last = clock_.Now();
  }
  const int64_t now = UnixSeconds(clock_.WallNow());
  writer_.PostNewest(job, "progress", [=](OrderedJson& status) {
    CountGoodput(status, progress.step, progress.step_seconds, now);
    const double left = static_cast<double>(progress.total_steps - progress.step);
    status["progress"] = {{"step", progress.step},
                          {"totalSteps", progress.total_steps},
                          {"loss", progress.loss},
                          {"epoch", progress.epoch},
                          {"tokensPerSecond", std::round(progress.tokens_per_second)},
                          {"etaSeconds", std::round(left * progress.step_seconds)},
                          {"eta", FormatDuration(left * progress.step_seconds)}};
    return true;
  });
}

void Controller::OnCheckpoint(const std::string& job, const wire::CheckpointSaved& checkpoint) {
  observer_.OnCheckpoint(job, checkpoint);
  const std::string now = FormatTime(clock_.WallNow());
  writer_.PostNewest(job, "checkpoint", [=](OrderedJson& status) {
    if (!checkpoint.warning.empty()) {
      status["checkpointWarning"] = checkpoint.warning;
      return true;
    }
    status.erase("checkpointWarning");
    status["checkpoint"] = {{"step", checkpoint.step},
                            {"path", checkpoint.path},
                            {"saveSeconds", checkpoint.seconds},
                            {"fenceGeneration", checkpoint.generation},
                            {"time", now}};
    return true;
  });
}

void Controller::OnFinished(const std::string& job, const wire::Finished& finished) {
  writer_.Post(job, [=](OrderedJson& status) {
    status["finished"] = {{"step", finished.step}, {"outputDir", finished.output_dir}};
    return true;
  });
}

void Controller::OnFatal(const std::string& job, int rank, const std::string& reason) {
  (void)rank;
  writer_.Post(job, [=](OrderedJson& status) {
    if (!status.contains("failure")) status["failure"] = reason;
    return true;
  });
}

void Controller::OnReplicaConnected(const std::string& job, const wire::Hello& hello) {
  LogDebug("replica connected", {{"job", job}, {"pod", hello.pod}});
}

void Controller::OnReplicaLost(const std::string& job, int replica, int incarnation,
                               const std::string& reason) {
  LogDebug("replica lost",
           {{"job", job}, {"pod", names::Pod(job, replica, incarnation)}, {"reason", reason}});
  queue_->Add(job);
}

}  // namespace everstep
