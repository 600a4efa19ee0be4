// The fast loop of one job: who is alive, and which generation follows.
//
// A pure state machine: no I/O, no threads, no clock. Every input carries `now`; every output
// carries its reason, which becomes the log line. The server (server.h) feeds it and acts on what
// it returns.
//
// The rules:
// - A new membership is output as Persist first, and sent to anybody only after Persisted().
// - A member's death makes a generation of the survivors at once; more deaths supersede it.
// - A newcomer joins by a planned generation, one change at a time; a death supersedes it.
// - With nobody left it waits for all ranks (or enough of them, after a while): everybody is a
//   newcomer then, and starts from the newest checkpoint.
#ifndef EVERSTEP_OPERATOR_RENDEZVOUS_SESSION_H_
#define EVERSTEP_OPERATOR_RENDEZVOUS_SESSION_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/wire.h"
#include "operator/rendezvous/incident.h"
#include "operator/rendezvous/incident_book.h"

namespace everstep {

struct SessionOptions {
  std::string job;
  std::string token;  // what a supervisor must present
  int replicas = 1;
  int processes_per_replica = 1;
  int min_members = 1;            // fewer ranks do not train: they wait
  uint64_t first_generation = 0;  // newest one in status; the next is greater
  int64_t durable_step = -1;      // newest checkpoint in status
  // By replica, as in status: no older pod of it may connect. Missing ones are 0.
  std::vector<int> lowest_incarnations;
  // A supervisor silent for this long is dead. It beats four times within.
  Duration heartbeat_timeout = std::chrono::seconds(1);
  // A supervisor whose connection broke may be back within this; then nothing happened.
  Duration reconnect_grace = std::chrono::milliseconds(100);
  // Plain exits this soon after a death in the same generation are its victims.
  Duration settle_window = std::chrono::seconds(2);
  // An exchange that broke though nobody died is tried again with the same members after this.
  Duration peer_lost_grace = std::chrono::seconds(2);
  // How long a ready newcomer waits for others that are starting, to join together.
  Duration join_window = std::chrono::milliseconds(200);
  // A plain exit with one of these is never a victim's.
  std::set<int> fatal_exit_codes{2, 3};
  // With nobody left: after this, min_members ranks are enough.
  Duration refill_deadline = std::chrono::minutes(2);
  // A membership that could not be written is written again after this.
  Duration persist_retry = std::chrono::milliseconds(200);
};

// Spreads logical ranks 0 .. logical_world-1 over `ranks` (ascending process numbers). Each keeps
// its own number; the orphans go, in ascending order, each to the member that hosts fewest (the
// lowest rank among equals). The result is ascending per member and depends on nothing else.
std::vector<std::vector<int>> AssignLogicalRanks(const std::vector<int>& ranks, int logical_world);

// What the slow loop wants done about a dead rank.
struct RecoveryDecision {
  enum class Kind {
    kRestartInPlace,  // rung 1: the supervisor starts a new process after `delay`
    kReplacePod,      // rung 2: the slow loop makes a new pod; it will say PodReplaced()
    kWait,            // rung 3: go on with fewer; a command may come later
    kFail,            // rung 5: the job has failed
  };
  Kind kind = Kind::kWait;
  Duration delay{};
  std::string reason;  // shown in the incident, in the log and in status
};

// Number of a connection, given by the server; never used twice.
using ConnectionId = uint64_t;

namespace session {

// Write this membership to status, then call Persisted() or PersistFailed().
struct Persist {
  wire::Membership membership;
};
struct Send {
  ConnectionId connection = 0;
  wire::Message message;
};
// Send what is queued, then close.
struct Close {
  ConnectionId connection = 0;
};
// Ask the slow loop what to do about `rank` and give its answer to Decided(). A victim's death is
// not an incident of its own: `incident` is the one with the root cause.
struct AskRecovery {
  int rank = -1;
  bool victim = false;
  Incident incident;
};
// News for the slow loop.
struct IncidentUpdated {
  Incident incident;
};
struct Formed {
  wire::Membership membership;  // it was persisted and is being sent
};
struct Regrouped {
  uint64_t generation = 0;  // all its members have regrouped
  int64_t step = 0;
};
struct Progressed {
  wire::Progress progress;
};
struct Checkpointed {
  wire::CheckpointSaved checkpoint;
};
struct JobFinished {
  wire::Finished finished;
};
struct JobFailed {
  int rank = -1;  // -1: decided by the slow loop
};
struct ReplicaConnected {
  wire::Hello hello;
};
struct ReplicaLost {
  int replica = -1;
  int incarnation = 0;
};

using Action =
    std::variant<Persist, Send, Close, AskRecovery, IncidentUpdated, Formed, Regrouped, Progressed,
                 Checkpointed, JobFinished, JobFailed, ReplicaConnected, ReplicaLost>;

struct Output {
  Action action;
  std::string reason;
};
using Outputs = std::vector<Output>;

}  // namespace session

enum class SessionPhase {
  kForming,  // nobody is in a generation: waits for ranks to be ready
  kShort,    // fewer live members than min_members: they keep their state and wait
  kRunning,
  kStopping,  // asked to stop: deaths are expected
  kFinished,
  kFailed,
};
std::string_view SessionPhaseName(SessionPhase phase);

class Session {
 public:
  Session(SessionOptions options, TimePoint now);

  // ---- From supervisors ----
  session::Outputs Connected(TimePoint now, ConnectionId connection, const wire::Hello& hello);
  session::Outputs Disconnected(TimePoint now, ConnectionId connection);
  session::Outputs Received(TimePoint now, ConnectionId connection, const wire::Message& message);

  // ---- From the server ----
  session::Outputs Tick(TimePoint now);
  session::Outputs Persisted(TimePoint now, uint64_t generation);
  session::Outputs PersistFailed(TimePoint now, uint64_t generation, const std::string& why);

  // ---- From the slow loop ----
  // Its answer to AskRecovery, at once or later; also an order to restart a rank by hand.
  session::Outputs Decided(TimePoint now, int rank, const RecoveryDecision& decision);
  // Only `incarnation` (or a later one) of `replica` may connect from now on.
  session::Outputs PodReplaced(TimePoint now, int replica, int incarnation);
  // No more than `count` ranks are to be had for now: do not wait for the others.
  session::Outputs AllowMembers(TimePoint now, int count);
  session::Outputs Fail(TimePoint now, const std::string& reason);
  session::Outputs Stop(TimePoint now, Duration grace, const std::string& reason);

  SessionPhase phase() const { return phase_; }
  uint64_t generation() const { return generation_; }
  // The membership that was sent last; generation 0 before the first.
  const wire::Membership& membership() const { return current_; }
  int64_t durable_step() const { return durable_step_; }
  int64_t last_step() const { return last_step_; }
  const SessionOptions& options() const { return options_; }

 private:
  enum class RankState {
    kAbsent,    // no process of it is known
    kStarting,  // its process runs and loads
    kReady,     // waits to become a member
    kMember,    // of the newest generation
    kFinished,
    kDead,
  };
  struct Rank {
    RankState state = RankState::kAbsent;
    int64_t pid = 0;
    std::string endpoint;
    bool holds_state = false;  // it has regrouped at least once in this life
    uint64_t regrouped = 0;    // newest generation that it reported
    TimePoint ready_since{};
    // It exited with 0 and the job's Finished may be on its way from another member.
    std::optional<TimePoint> left_since;
    std::optional<TimePoint> restart_due;
    std::string restart_reason;
  };
  struct Replica {
    ConnectionId connection = 0;  // 0: not connected
    int lowest_incarnation = 0;   // that may connect
    int incarnation = -1;         // that is or was connected
    std::string pod;
    std::string node;
    TimePoint last_heard{};
    std::optional<TimePoint> gone_since;  // the connection broke, and it is not given up yet
  };
  struct Death {
    IncidentCause cause = IncidentCause::kExited;
    int exit_code = 0;
    int signal = 0;
    double detect_seconds = 0;
  };
  struct Ask {
    int rank = -1;
    uint64_t incident = 0;
    bool victim = false;
  };

  // One handler per message that a supervisor sends.
  void On(int replica, const wire::Ready& message);
  void On(int replica, const wire::Regrouped& message);
  void On(int replica, const wire::PeerLost& message);
  void On(int replica, const wire::Progress& message);
  void On(int replica, const wire::CheckpointSaved& message);
  void On(int replica, const wire::Finished& message);
  void On(int replica, const wire::Fatal& message);
  void On(int replica, const wire::ProcessStarted& message);
  void On(int replica, const wire::ProcessDied& message);
  void On(int replica, const wire::LastWords& message);
  void On(int replica, const wire::Heartbeat& message);

  // Marks the rank dead. Within one `group` (a pod's ranks) only the first opens an incident; its
  // id is kept there.
  void RankDied(int rank, const Death& death, uint64_t* group = nullptr);
  bool IsVictim(int rank, const Death& death) const;
  void ReplicaGone(int replica, IncidentCause cause, double silent_seconds, const std::string& why);
  void Refuse(ConnectionId connection, const std::string& why);
  void GiveUpSilentReplicas();
  void RestartDueRanks();
  void EndJob(SessionPhase phase);
  void StopLatecomers();

  // Looks at who is alive and makes the next generation if one is due.
  void Reconsider();
  void ReconsiderForming();
  void ReconsiderShort();
  void ReconsiderRunning();
  void MembersLost(const std::vector<int>& live, const std::vector<int>& ready);
  void WaitForAll();
  void Propose(std::vector<int> ranks, bool planned, const std::string& reason);

  int replica_of(int rank) const { return rank / options_.processes_per_replica; }
  int world() const { return options_.replicas * options_.processes_per_replica; }
  bool ended() const;
  const wire::Membership& newest() const { return pending_ ? *pending_ : current_; }
  bool Settled() const;
  bool IsAlive(int rank) const;
  std::vector<int> RanksIn(RankState state) const;
  // Opens and closes the handling of one input.
  void Begin(TimePoint now) { now_ = now; }
  void Emit(session::Action action, std::string reason);
  session::Outputs Finish();

  const SessionOptions options_;
  TimePoint now_;  // of the input that is being handled
  SessionPhase phase_ = SessionPhase::kForming;
  std::map<int, Rank> ranks_;  // all of 0 .. world()-1
  std::map<int, Replica> replicas_;
  uint64_t generation_;  // newest one given out
  wire::Membership current_;
  std::optional<wire::Membership> pending_;  // output as Persist, not persisted yet
  std::string pending_reason_;
  std::optional<TimePoint> persist_again_;
  std::optional<TimePoint> exchange_broken_;  // first PeerLost that nothing has answered
  uint64_t newest_unplanned_ = 0;  // generation whose members left all older ones at once
  TimePoint phase_since_;
  TimePoint last_tick_;
  int allowed_members_;
  std::optional<wire::Stop> stop_;
  std::vector<Ask> asks_;
  int64_t durable_step_;
  int64_t last_step_ = 0;
  IncidentBook incidents_;
  session::Outputs outputs_;
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_RENDEZVOUS_SESSION_H_
