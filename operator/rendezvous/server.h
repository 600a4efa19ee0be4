// Rendezvous over TCP: accepts supervisors, feeds each job's Session, acts on what it returns.
//
// One thread serves all jobs. Frames are common/wire.h's. A connection says Hello first, within
// kHelloTimeout. A client that sends garbage, too much or reads too slowly loses its connection;
// nobody else notices.
#ifndef EVERSTEP_OPERATOR_RENDEZVOUS_SERVER_H_
#define EVERSTEP_OPERATOR_RENDEZVOUS_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/result.h"
#include "common/wire.h"
#include "operator/rendezvous/incident.h"
#include "operator/rendezvous/session.h"

namespace everstep {

// What the slow loop does for the fast one. Every call comes from the server's thread, must return
// quickly (all jobs wait for it) and may call the server's commands.
class RendezvousEvents {
 public:
  virtual ~RendezvousEvents() = default;

  // Writes `membership` to status.attempt, then calls `done`, once, from any thread, inline too.
  // Nothing acts on the membership before. After an error it is tried again.
  virtual void PersistMembership(const std::string& job, const wire::Membership& membership,
                                 std::function<void(Status)> done) = 0;
  // What is to be done about dead `rank`? The answer goes to `decide`, once, from any thread,
  // inline too. `victim`: its death follows from `incident`, whose root cause is another rank; it
  // needs a new process and does not count.
  virtual void OnProcessDied(const std::string& job, const Incident& incident, int rank,
                             bool victim, std::function<void(RecoveryDecision)> decide) = 0;
  // More of the incident is known. The last call has incident.closed.
  virtual void OnIncidentUpdated(const std::string& job, const Incident& incident) = 0;
  // It was persisted and is being sent to the supervisors.
  virtual void OnMembership(const std::string& job, const wire::Membership& membership,
                            const std::string& reason) = 0;
  // All members of `generation` are connected and agree on the state after `step` steps.
  virtual void OnRegrouped(const std::string& job, uint64_t generation, int64_t step) = 0;
  virtual void OnProgress(const std::string& job, const wire::Progress& progress) = 0;
  virtual void OnCheckpoint(const std::string& job, const wire::CheckpointSaved& checkpoint) = 0;
  // The job is done, once. Its processes exit on their own.
  virtual void OnFinished(const std::string& job, const wire::Finished& finished) = 0;
  // The job has failed, once; `rank` is -1 when the slow loop itself decided so.
  virtual void OnFatal(const std::string& job, int rank, const std::string& reason) = 0;
  virtual void OnReplicaConnected(const std::string& job, const wire::Hello& hello) = 0;
  virtual void OnReplicaLost(const std::string& job, int replica, int incarnation,
                             const std::string& reason) = 0;
};

// Thread-safe. Commands return at once and take effect on the server's thread, in order; a command
// about an unknown job does nothing.
class RendezvousServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    uint16_t port = 0;  // 0: any free one
    Duration tick = std::chrono::milliseconds(10);
  };

  // `events` is borrowed and outlives the server.
  static Result<std::unique_ptr<RendezvousServer>> Start(const Options& options,
                                                         RendezvousEvents& events);
  // Closes all connections and ends the thread; no call to `events` after it returns. Not from a
  // call of `events`.
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  uint16_t port() const;

  // Serves a job from now on. One of the same name is replaced: its connections are closed.
  void AddJob(const SessionOptions& job);
  // Closes its connections. Calls that are under way may still arrive while this returns.
  void RemoveJob(const std::string& job);

  void StartProcess(const std::string& job, int rank, Duration delay, const std::string& reason);
  void PodReplaced(const std::string& job, int replica, int incarnation);
  void AllowMembers(const std::string& job, int count);
  void Fail(const std::string& job, const std::string& reason);
  // Stops all processes of the job: workers save a checkpoint and exit; SIGKILL after `grace`.
  void Stop(const std::string& job, Duration grace, const std::string& reason);

  static constexpr std::chrono::seconds kHelloTimeout{5};
  static constexpr size_t kMaxQueuedBytes = 16 << 20;  // per connection
  static constexpr size_t kMaxConnections = 4096;

 private:
  class Impl;
  explicit RendezvousServer(std::shared_ptr<Impl> impl);
  const std::shared_ptr<Impl> impl_;  // with callbacks that are still out
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_RENDEZVOUS_SERVER_H_
