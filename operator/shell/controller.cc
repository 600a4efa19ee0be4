#include "operator/shell/controller.h"

#include <algorithm>
#include <cmath>

#include "common/log.h"
#include "operator/api/names.h"
#include "operator/core/recovery.h"
#include "operator/shell/incident_json.h"

namespace everstep {
namespace {

constexpr size_t kIncidentsKept = 10;
constexpr std::chrono::seconds kProgressInterval{1};
constexpr std::chrono::seconds kRetryAfterError{1};

PodPhase ParsePhase(const std::string& phase) {
  if (phase == "Running") return PodPhase::kRunning;
  if (phase == "Succeeded") return PodPhase::kSucceeded;
  if (phase == "Failed") return PodPhase::kFailed;
  return PodPhase::kPending;
}

int ExitCodeOf(const OrderedJson& status) {
  if (!status.contains("containerStatuses")) return 0;
  for (const OrderedJson& container : status["containerStatuses"]) {
    const OrderedJson& state = container.value("state", OrderedJson::object());
    if (state.contains("terminated")) return state["terminated"].value("exitCode", 0);
  }
  return 0;
}

PodView ViewOf(const OrderedJson& pod) {
  PodView view;
  const OrderedJson& metadata = pod["metadata"];
  view.name = metadata["name"].get<std::string>();
  view.replica = std::stoi(metadata["labels"].value(names::kReplicaLabel, "0"));
  view.incarnation = std::stoi(metadata["labels"].value(names::kIncarnationLabel, "0"));
  view.deleting = metadata.contains("deletionTimestamp");
  if (pod.contains("status")) {
    view.phase = ParsePhase(pod["status"].value("phase", "Pending"));
    view.exit_code = ExitCodeOf(pod["status"]);
    view.message = pod["status"].value("message", "");
  }
  return view;
}

int64_t UnixSeconds(WallTime time) { return std::chrono::system_clock::to_time_t(time); }

}  // namespace

Controller::Controller(Options options, ObjectClient& objects, const Clock& clock,
                       JobObserver& observer)
    : options_(std::move(options)), objects_(objects), clock_(clock), observer_(observer) {}

Controller::~Controller() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Controller::Start(RendezvousServer& server, const std::string& rendezvous_address) {
  server_ = &server;
  rendezvous_address_ = rendezvous_address;
  objects_.Subscribe([this](const std::string& kind, const std::string& name) {
    if (kind == names::kKind) return Enqueue(name);
    if (kind != "Pod") return;
    // A pod is named <job>-<replica>-<incarnation>.
    Enqueue(name.substr(0, name.rfind('-', name.rfind('-') - 1)));
  });
  if (const auto jobs = objects_.List(names::kKind)) {
    for (const OrderedJson& job : *jobs) Enqueue(job["metadata"]["name"].get<std::string>());
  }
  thread_ = std::thread([this] { Loop(); });
}

void Controller::Enqueue(const std::string& job) {
  const std::lock_guard lock(mutex_);
  dirty_.insert(job);
  changed_.notify_all();
}

void Controller::Loop() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    for (auto due = due_.begin(); due != due_.end();) {
      if (due->second > clock_.Now()) {
        ++due;
        continue;
      }
      dirty_.insert(due->first);
      due = due_.erase(due);
    }
    if (dirty_.empty()) {
      TimePoint next = clock_.Now() + std::chrono::hours(1);
      for (const auto& [job, at] : due_) next = std::min(next, at);
      changed_.wait_until(lock, next, [&] { return ending_ || !dirty_.empty(); });
      continue;
    }
    const std::string job = *dirty_.begin();
    dirty_.erase(dirty_.begin());
    lock.unlock();
    const std::optional<Duration> again = ReconcileJob(job);
    lock.lock();
    if (again) due_[job] = clock_.Now() + *again;
  }
}

Result<TrainingJob> Controller::ReadJob(const std::string& name, OrderedJson* status) {
  ASSIGN_OR_RETURN(const OrderedJson object, objects_.Get(names::kKind, name));
  if (status != nullptr) *status = object.value("status", OrderedJson());
  return TrainingJobFromJson(object);
}

Result<Observed> Controller::Observe(const std::string& name) {
  Observed observed;
  ASSIGN_OR_RETURN(observed.job, ReadJob(name, &observed.status));
  ASSIGN_OR_RETURN(const std::vector<OrderedJson> pods, objects_.List("Pod"));
  for (const OrderedJson& pod : pods) {
    if (pod["metadata"]["labels"].value(names::kJobLabel, "") == name) {
      observed.pods.push_back(ViewOf(pod));
    }
  }
  observed.has_config_map = objects_.Get("ConfigMap", names::TrainConfigMap(name)).has_value();
  observed.has_service = objects_.Get("Service", names::Service(name)).has_value();
  observed.rendezvous = rendezvous_address_;
  observed.token = options_.token;
  observed.default_threads = options_.default_threads;
  return observed;
}

// Rendezvous has to know a job before its first pod can connect.
void Controller::ServeJob(const Observed& observed) {
  const TrainingJobSpec& spec = observed.job.spec;
  {
    const std::lock_guard lock(mutex_);
    if (!served_.insert(observed.job.name).second) return;
  }
  SessionOptions session;
  session.job = observed.job.name;
  session.token = options_.token;
  session.replicas = spec.replicas;
  session.processes_per_replica = spec.processes_per_replica;
  session.min_members = spec.elastic.min_replicas * spec.processes_per_replica;
  session.heartbeat_timeout = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(spec.health.heartbeat_timeout_seconds));
  session.fatal_exit_codes = {spec.recovery.fatal_exit_codes.begin(),
                              spec.recovery.fatal_exit_codes.end()};
  if (observed.status.is_object() && observed.status.contains("attempt")) {
    session.first_generation = observed.status["attempt"].value("generation", uint64_t{0});
  }
  if (observed.status.is_object() && observed.status.contains("checkpoint")) {
    session.durable_step = observed.status["checkpoint"].value("step", int64_t{-1});
  }
  server_->AddJob(session);
}

std::optional<Duration> Controller::ReconcileJob(const std::string& name) {
  auto observed = Observe(name);
  if (!observed) {
    if (observed.error().code == ErrorCode::kNotFound) return std::nullopt;
    LogWarning(observed.error().message, {{"job", name}});
    return kRetryAfterError;
  }
  if (!IsTerminal(observed->status)) ServeJob(*observed);
  const Plan plan = Reconcile(*observed, clock_.WallNow());
  if (!plan.reason.empty()) LogDebug("reconcile", {{"job", name}, {"decision", plan.reason}});
  for (const PlannedAction& action : plan.actions) Execute(*observed, action);
  if (plan.status != observed->status) {
    // What the fast loop has written meanwhile stays: only what the plan changed is applied.
    const OrderedJson changes = OrderedJson(plan.status);
    const OrderedJson before =
        observed->status.is_object() ? observed->status : OrderedJson::object();
    const Status written = UpdateStatus(name, [&](OrderedJson& status) {
      for (const auto& [key, value] : changes.items()) {
        if (!before.contains(key) || before[key] != value) status[key] = value;
      }
      return true;
    });
    if (!written) {
      LogWarning(written.error().message, {{"job", name}});
      return kRetryAfterError;
    }
    observer_.OnPhase(name, plan.status);
  }
  return plan.requeue_after;
}

void Controller::Execute(const Observed& observed, const PlannedAction& action) {
  const std::string& job = observed.job.name;
  Status result;
  if (const auto* create = std::get_if<CreateObject>(&action)) {
    const auto created = objects_.Create(create->object);
    // Names are deterministic: what exists already was created by the same decision.
    if (!created && created.error().code != ErrorCode::kAlreadyExists) {
      result = tl::unexpected(created.error());
    }
  } else if (const auto* erase = std::get_if<DeletePod>(&action)) {
    result = objects_.Delete("Pod", erase->name);
    if (!result && result.error().code == ErrorCode::kNotFound) result = {};
  } else if (const auto* fence = std::get_if<FenceReplica>(&action)) {
    server_->PodReplaced(job, fence->replica, fence->incarnation);
  } else if (const auto* stop = std::get_if<StopProcesses>(&action)) {
    server_->Stop(
        job,
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(stop->grace_seconds)),
        stop->reason);
  }
  if (!result) LogWarning(result.error().message, {{"job", job}});
}

Status Controller::UpdateStatus(const std::string& job,
                                const std::function<bool(OrderedJson&)>& change) {
  constexpr int kAttempts = 20;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ASSIGN_OR_RETURN(OrderedJson object, objects_.Get(names::kKind, job));
    OrderedJson status = object.value("status", OrderedJson::object());
    if (!status.is_object()) status = OrderedJson::object();
    const OrderedJson before = status;
    if (!change(status) || status == before) return {};
    object["status"] = status;
    const auto written = objects_.UpdateStatus(std::move(object));
    if (written) return {};
    if (written.error().code != ErrorCode::kConflict) return tl::unexpected(written.error());
  }
  return MakeError(ErrorCode::kConflict, "the status of " + job + " keeps changing");
}

// ---- The fast loop's events --------------------------------------------------------------------

void Controller::PersistMembership(const std::string& job, const wire::Membership& membership,
                                   std::function<void(Status)> done) {
  OrderedJson members = OrderedJson::array();
  for (const wire::Member& member : membership.members) members.push_back(member.rank);
  bool stale = false;
  Status written = UpdateStatus(job, [&](OrderedJson& status) {
    const uint64_t known =
        status.contains("attempt") ? status["attempt"].value("generation", uint64_t{0}) : 0;
    stale = known >= membership.generation;
    if (stale) return false;
    status["attempt"] = {{"generation", membership.generation},
                         {"worldSize", membership.members.size()},
                         {"members", members}};
    return true;
  });
  if (written && stale) {
    written = MakeError(ErrorCode::kConflict, "status holds a newer generation already");
  }
  done(written);
}

RecoveryDecision Controller::OnProcessDied(const std::string& job, const Incident& incident,
                                           int rank, bool victim) {
  OrderedJson status;
  const auto object = ReadJob(job, &status);
  if (!object) return {RecoveryDecision::Kind::kWait, {}, object.error().message};
  if (incident.cause == IncidentCause::kVanished || incident.cause == IncidentCause::kReplaced) {
    // The pod itself is gone: the slow loop sees its end, charges it and makes another.
    Enqueue(job);
    return {RecoveryDecision::Kind::kReplacePod, {}, "its pod is gone: a new one takes its place"};
  }
  Failure failure;
  failure.rank = rank;
  failure.victim = victim;
  failure.joined = incident.was_member;
  failure.regrouped = status.value("regroupedGeneration", uint64_t{0});
  failure.exited = incident.cause == IncidentCause::kExited;
  failure.exit_code = incident.exit_code;
  failure.step = incident.interrupted_step;
  failure.durable_step =
      status.contains("checkpoint") ? status["checkpoint"].value("step", int64_t{-1}) : -1;
  RecoveryPlan plan;
  const Status written = UpdateStatus(job, [&](OrderedJson& current) {
    plan = PlanRecovery(object->spec.recovery,
                        RecoveryHistory::FromJson(current.value("restarts", OrderedJson())),
                        failure, UnixSeconds(clock_.WallNow()));
    current["restarts"] = plan.history.ToJson();
    if (plan.action == RecoveryAction::kFail) {
      current["failure"] = plan.reason;
    } else if (plan.action == RecoveryAction::kReplacePod) {
      current["lastChargedPod"] = incident.pod;
    }
    return true;
  });
  if (!written) return {RecoveryDecision::Kind::kWait, {}, written.error().message};
  const Duration delay =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(plan.delay_seconds));
  switch (plan.action) {
    case RecoveryAction::kRestartInPlace:
      return {RecoveryDecision::Kind::kRestartInPlace, delay, plan.reason};
    case RecoveryAction::kReplacePod:
      if (const Status deleted = objects_.Delete("Pod", incident.pod); !deleted) {
        LogWarning(deleted.error().message, {{"job", job}});
      }
      return {RecoveryDecision::Kind::kReplacePod, delay, plan.reason};
    case RecoveryAction::kFail:
      return {RecoveryDecision::Kind::kFail, {}, plan.reason};
  }
  return {};
}

void Controller::OnIncidentUpdated(const std::string& job, const Incident& incident) {
  const Status written = UpdateStatus(job, [&](OrderedJson& status) {
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
    entry["at"] = FormatTime(clock_.WallNow());
    list.insert(list.begin(), entry);
    if (list.size() > kIncidentsKept) list.erase(list.size() - 1);
    return true;
  });
  if (!written) LogWarning(written.error().message, {{"job", job}});
  observer_.OnIncident(job, incident);
}

void Controller::OnMembership(const std::string& job, const wire::Membership& membership,
                              const std::string& reason) {
  observer_.OnMembership(job, membership, reason);
}

void Controller::OnRegrouped(const std::string& job, uint64_t generation, int64_t step) {
  (void)step;
  const Status written = UpdateStatus(job, [&](OrderedJson& status) {
    if (IsTerminal(status)) return false;
    status["regroupedGeneration"] = generation;
    const int64_t members =
        status.contains("attempt") ? status["attempt"].value("worldSize", int64_t{0}) : 0;
    status["phase"] =
        members == status.value("logicalWorld", int64_t{0}) ? "Running" : "Recovering";
    return true;
  });
  if (!written) LogWarning(written.error().message, {{"job", job}});
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
  const Status written = UpdateStatus(job, [&](OrderedJson& status) {
    const double left = static_cast<double>(progress.total_steps - progress.step);
    status["progress"] = {{"step", progress.step},
                          {"totalSteps", progress.total_steps},
                          {"loss", progress.loss},
                          {"epoch", progress.epoch},
                          {"tokensPerSecond", std::round(progress.tokens_per_second)},
                          {"etaSeconds", std::round(left * progress.step_seconds)}};
    return true;
  });
  if (!written) LogWarning(written.error().message, {{"job", job}});
}

void Controller::OnCheckpoint(const std::string& job, const wire::CheckpointSaved& checkpoint) {
  observer_.OnCheckpoint(job, checkpoint);
  const Status written = UpdateStatus(job, [&](OrderedJson& status) {
    if (!checkpoint.warning.empty()) {
      status["checkpointWarning"] = checkpoint.warning;
      return true;
    }
    status.erase("checkpointWarning");
    status["checkpoint"] = {{"step", checkpoint.step},
                            {"path", checkpoint.path},
                            {"saveSeconds", checkpoint.seconds},
                            {"fenceGeneration", checkpoint.generation},
                            {"time", FormatTime(clock_.WallNow())}};
    return true;
  });
  if (!written) LogWarning(written.error().message, {{"job", job}});
}

void Controller::OnFinished(const std::string& job, const wire::Finished& finished) {
  const Status written = UpdateStatus(job, [&](OrderedJson& status) {
    status["finished"] = {{"step", finished.step}, {"outputDir", finished.output_dir}};
    return true;
  });
  if (!written) LogError(written.error().message, {{"job", job}});
}

void Controller::OnFatal(const std::string& job, int rank, const std::string& reason) {
  (void)rank;
  const Status written = UpdateStatus(job, [&](OrderedJson& status) {
    if (!status.contains("failure")) status["failure"] = reason;
    return true;
  });
  if (!written) LogError(written.error().message, {{"job", job}});
}

void Controller::OnReplicaConnected(const std::string& job, const wire::Hello& hello) {
  LogDebug("replica connected", {{"job", job}, {"pod", hello.pod}});
}

void Controller::OnReplicaLost(const std::string& job, int replica, int incarnation,
                               const std::string& reason) {
  LogDebug("replica lost",
           {{"job", job}, {"pod", names::Pod(job, replica, incarnation)}, {"reason", reason}});
  Enqueue(job);
}

}  // namespace everstep
