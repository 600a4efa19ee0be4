#include "operator/shell/controller.h"

#include <algorithm>
#include <vector>

#include "common/log.h"
#include "operator/api/names.h"
#include "operator/api/timestamp.h"
#include "operator/shell/observation.h"

namespace everstep {
namespace {}  // namespace

Controller::Controller(Options options, ObjectClient& objects, const Clock& clock,
                       JobObserver& observer)
    : options_(std::move(options)),
      objects_(objects),
      clock_(clock),
      observer_(observer),
      queue_(std::make_shared<WorkQueue>(WorkQueue::Options{}, clock)),
      writer_(objects, options_.status_threads) {}

Controller::~Controller() { Stop(); }

void Controller::Stop() {
  queue_->End();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Controller::Start(RendezvousServer& server, const std::string& rendezvous_address) {
  server_ = &server;
  rendezvous_address_ = rendezvous_address;
  objects_.Subscribe([queue = queue_](const std::string& kind, const std::string& key) {
    if (kind == names::kKind) return queue->Add(key);
    if (kind != "Pod") return;
    // A pod's key is <job's key>-<replica>-<incarnation>.
    queue->Add(key.substr(0, key.rfind('-', key.rfind('-') - 1)));
  });
  if (const auto jobs = objects_.List(names::kKind)) {
    for (const OrderedJson& job : *jobs) queue_->Add(KeyOf(job));
  }
  for (int i = 0; i < options_.workers; ++i) threads_.emplace_back([this] { Loop(); });
}

void Controller::Loop() {
  while (const auto job = queue_->Get()) {
    const auto again = ReconcileJob(*job);
    if (again) {
      queue_->Forget(*job);
      if (*again) queue_->AddAfter(*job, **again);
    } else {
      LogWarning(again.error().message, {{"job", *job}});
      queue_->AddAfterFailure(*job);
    }
    queue_->Done(*job);
  }
}

Result<TrainingJob> Controller::ReadJob(const std::string& key, OrderedJson* status) {
  ASSIGN_OR_RETURN(const OrderedJson object, objects_.Get(names::kKind, key));
  if (status != nullptr) *status = object.value("status", OrderedJson());
  return TrainingJobFromJson(object);
}

Result<Observed> Controller::Observe(const std::string& key) {
  Observed observed;
  ASSIGN_OR_RETURN(observed.job, ReadJob(key, &observed.status));
  ASSIGN_OR_RETURN(const std::vector<OrderedJson> pods, objects_.ListOf("Pod", key));
  for (const OrderedJson& pod : pods) {
    if (IsOwnedBy(pod, observed.job.uid)) observed.pods.push_back(ViewOfPod(pod));
  }
  const auto exists = [&](const char* kind, const std::string& name) {
    return objects_.Get(kind, KeyBeside(key, name)).has_value();
  };
  observed.has_config_map = exists("ConfigMap", names::TrainConfigMap(observed.job.name));
  observed.has_service = exists("Service", names::Service(observed.job.name));
  if (observed.job.spec.network_policy == "Isolated") {
    observed.has_network_policy = exists("NetworkPolicy", names::NetworkPolicy(observed.job.name));
  }
  const auto claim = objects_.Get("PersistentVolumeClaim", KeyBeside(key, ClaimName(observed.job)));
  if (claim) observed.claim = ViewOfClaim(*claim);
  observed.pod_context = options_.pod_context;
  if (options_.token_of) observed.pod_context.token = options_.token_of(observed.job);
  observed.pod_context.rendezvous = rendezvous_address_;
  observed.default_threads = options_.default_threads;
  return observed;
}

// Rendezvous has to know a job before its first pod can connect. A suspended job's session has
// ended; a resumed one gets a new session when the old pods are gone.
void Controller::ServeJob(const Observed& observed) {
  const TrainingJobSpec& spec = observed.job.spec;
  const std::string key = observed.job.key();
  const OrderedJson& status = observed.status;
  const bool suspended = status.is_object() && status.value("phase", "") == "Suspended";
  const std::lock_guard lock(mutex_);
  if (suspended) served_.erase(key);
  if (spec.suspend || (suspended && !observed.pods.empty())) return;
  // One that was made anew under an old one's name is another job.
  std::string& served = served_[key];
  if (served == observed.job.uid) return;
  served = observed.job.uid;
  SessionOptions session;
  session.job = key;
  session.token = observed.pod_context.token;
  session.replicas = spec.replicas;
  session.processes_per_replica = spec.processes_per_replica;
  session.min_members = spec.elastic.min_replicas * spec.processes_per_replica;
  session.heartbeat_timeout = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(spec.health.heartbeat_timeout_seconds));
  session.fatal_exit_codes = {spec.recovery.fatal_exit_codes.begin(),
                              spec.recovery.fatal_exit_codes.end()};
  if (status.is_object() && status.contains("attempt")) {
    session.first_generation = status["attempt"].value("generation", uint64_t{0});
  }
  if (status.is_object() && status.contains("checkpoint")) {
    session.durable_step = status["checkpoint"].value("step", int64_t{-1});
  }
  if (status.is_object() && status.contains("incarnations")) {
    session.lowest_incarnations = status["incarnations"].get<std::vector<int>>();
  }
  server_->AddJob(session);
}

void Controller::ForgetJob(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (served_.erase(key) > 0) server_->RemoveJob(key);
  progress_written_.erase(key);
}

Result<std::optional<Duration>> Controller::ReconcileJob(const std::string& key) {
  auto observed = Observe(key);
  if (!observed && observed.error().code == ErrorCode::kNotFound) {
    ForgetJob(key);
    return std::nullopt;
  }
  if (!observed) return tl::unexpected(observed.error());
  if (!IsTerminal(observed->status)) ServeJob(*observed);
  const Plan plan = Reconcile(*observed, clock_.WallNow());
  if (!plan.reason.empty()) LogDebug("reconcile", {{"job", key}, {"decision", plan.reason}});
  // The status first: what the actions rest on (incarnations, charges) is known before they are
  // done. An action that is then lost is planned again from what is observed.
  ASSIGN_OR_RETURN(const bool current, WriteChanges(key, observed->status, plan.status));
  if (!current) return Duration::zero();  // decided on what is no longer so
  for (const PlannedAction& action : plan.actions) Execute(*observed, action);
  if (plan.status != observed->status) observer_.OnPhase(key, plan.status);
  return plan.requeue_after;
}

// Writes what differs between the two and leaves the rest, which the fast loop may have written
// meanwhile. False, and nothing written, when it has written one of the same fields.
Result<bool> Controller::WriteChanges(const std::string& job, const OrderedJson& before,
                                      const OrderedJson& after) {
  const auto at = [](const OrderedJson& status, const std::string& key) {
    return status.is_object() && status.contains(key) ? status[key] : OrderedJson();
  };
  std::set<std::string> keys;
  for (const OrderedJson* status : {&before, &after}) {
    if (!status->is_object()) continue;
    for (const auto& [key, value] : status->items()) {
      if (at(before, key) != at(after, key)) keys.insert(key);
    }
  }
  bool current = true;
  RETURN_IF_ERROR(writer_.Write(job, [&](OrderedJson& status) {
    current = std::ranges::all_of(
        keys, [&](const std::string& key) { return at(status, key) == at(before, key); });
    if (!current) return false;
    for (const std::string& key : keys) {
      if (after.contains(key)) {
        status[key] = after[key];
      } else {
        status.erase(key);
      }
    }
    return true;
  }));
  return current;
}

void Controller::Execute(const Observed& observed, const PlannedAction& action) {
  const std::string job = observed.job.key();
  Status result;
  if (const auto* create = std::get_if<CreateObject>(&action)) {
    const auto created = objects_.Create(create->object);
    // Names are deterministic: what exists already was created by the same decision.
    if (!created && created.error().code != ErrorCode::kAlreadyExists) {
      result = NoteCreateFailure(job, create->object, created.error());
    }
  } else if (const auto* erase = std::get_if<DeletePod>(&action)) {
    result = objects_.Delete("Pod", KeyBeside(job, erase->name));
    if (!result && result.error().code == ErrorCode::kNotFound) result = {};
  } else if (std::holds_alternative<DeleteJob>(action)) {
    result = objects_.Delete(names::kKind, job);
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

// What Kubernetes refuses to create is told in status, and tried again a moment later; for trouble
// on the way there is nothing to tell.
Status Controller::NoteCreateFailure(const std::string& job, const OrderedJson& object,
                                     const Error& error) {
  LogWarning(error.message, {{"job", job}});
  if (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded) {
    queue_->AddAfterFailure(job);
    return {};
  }
  const std::string message = object["kind"].get<std::string>() + " " +
                              object["metadata"]["name"].get<std::string>() +
                              " cannot be created: " + error.message;
  return writer_.Write(job, [&](OrderedJson& status) {
    MarkCreateFailed(status, message, error.code == ErrorCode::kResourceExhausted,
                     UnixSeconds(clock_.WallNow()));
    return true;
  });
}

}  // namespace everstep
