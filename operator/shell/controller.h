// The operator's loop around the pure core: observe, reconcile, execute, write the status; and the
// answers to the fast loop (rendezvous), whose facts it writes to the same status.
//
// Threads reconcile, each another job; rendezvous calls from its own. Both change a job's status
// only through the status writer, which retries on conflict, so status is the one source of truth.
#ifndef EVERSTEP_OPERATOR_SHELL_CONTROLLER_H_
#define EVERSTEP_OPERATOR_SHELL_CONTROLLER_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "operator/api/object_client.h"
#include "operator/core/reconcile.h"
#include "operator/core/recovery.h"
#include "operator/kube/work_queue.h"
#include "operator/rendezvous/server.h"
#include "operator/shell/status_writer.h"

namespace everstep {

// What happens to a job, for whoever shows it to people. Called from the controller's and the
// rendezvous server's threads; must be quick.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void OnPhase(const std::string& job, const OrderedJson& status) = 0;
  virtual void OnProgress(const std::string& job, const wire::Progress& progress) = 0;
  virtual void OnCheckpoint(const std::string& job, const wire::CheckpointSaved& saved) = 0;
  virtual void OnIncident(const std::string& job, const Incident& incident) = 0;
  virtual void OnMembership(const std::string& job, const wire::Membership& membership,
                            const std::string& reason) = 0;
};

// A job is named by its key (operator/api/object_key.h), in rendezvous too.
class Controller final : public RendezvousEvents {
 public:
  struct Options {
    PodContext pod_context;  // but for the rendezvous address
    // The job's own token; without it all jobs have that of pod_context.
    std::function<std::string(const TrainingJob&)> token_of = nullptr;
    int workers = 1;          // threads that reconcile, each another job
    int status_threads = 1;   // 0: events write their facts before they return
    int default_threads = 1;  // per process, where a spec does not say
  };

  // Everything is borrowed and outlives the controller.
  Controller(Options options, ObjectClient& objects, const Clock& clock, JobObserver& observer);
  ~Controller() override;

  // Starts reconciling. `server` is borrowed: Stop() comes before its end, and the controller's own
  // end after it, since each calls the other.
  void Start(RendezvousServer& server, const std::string& rendezvous_address);
  // Ends reconciling; events of rendezvous are still taken.
  void Stop();

  WorkQueue::Figures queue_figures() const { return queue_->figures(); }

  // ---- RendezvousEvents ----
  void PersistMembership(const std::string& job, const wire::Membership& membership,
                         std::function<void(Status)> done) override;
  void OnProcessDied(const std::string& job, const Incident& incident, int rank, bool victim,
                     std::function<void(RecoveryDecision)> decide) override;
  void OnIncidentUpdated(const std::string& job, const Incident& incident) override;
  void OnMembership(const std::string& job, const wire::Membership& membership,
                    const std::string& reason) override;
  void OnRegrouped(const std::string& job, uint64_t generation, int64_t step) override;
  void OnProgress(const std::string& job, const wire::Progress& progress) override;
  void OnCheckpoint(const std::string& job, const wire::CheckpointSaved& checkpoint) override;
  void OnFinished(const std::string& job, const wire::Finished& finished) override;
  void OnFatal(const std::string& job, int rank, const std::string& reason) override;
  void OnReplicaConnected(const std::string& job, const wire::Hello& hello) override;
  void OnReplicaLost(const std::string& job, int replica, int incarnation,
                     const std::string& reason) override;

 private:
  void Loop();
  // When to look again, if nothing happens before. An error: it did not work.
  Result<std::optional<Duration>> ReconcileJob(const std::string& key);
  Result<Observed> Observe(const std::string& key);
  void ServeJob(const Observed& observed);
  void ForgetJob(const std::string& key);
  Result<bool> WriteChanges(const std::string& job, const OrderedJson& before,
                            const OrderedJson& after);
  bool StoppedWithAnother(const std::string& job, const Incident& incident);
  RecoveryDecision CarryOut(const std::string& job, const Incident& incident,
                            const RecoveryPlan& plan);
  RecoveryDecision OnPodGone(const std::string& job, const Incident& incident);
  void Execute(const Observed& observed, const PlannedAction& action);
  Status NoteCreateFailure(const std::string& job, const OrderedJson& object, const Error& error);
  Result<TrainingJob> ReadJob(const std::string& key, OrderedJson* status);

  const Options options_;
  ObjectClient& objects_;
  const Clock& clock_;
  JobObserver& observer_;
  RendezvousServer* server_ = nullptr;
  std::string rendezvous_address_;

  // Shared with the subscription to the objects: changes may still be told while this ends.
  const std::shared_ptr<WorkQueue> queue_;
  std::mutex mutex_;
  std::map<std::string, std::string> served_;  // the uid of each job that rendezvous knows
  std::map<std::string, TimePoint> progress_written_;
  StatusWriter writer_;
  std::vector<std::thread> threads_;
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_SHELL_CONTROLLER_H_
