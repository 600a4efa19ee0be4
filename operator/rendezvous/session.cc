#include "operator/rendezvous/session.h"

#include <algorithm>
#include <utility>

namespace everstep {
namespace {

// Compares in a time that does not depend on where the texts differ.
bool SameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

std::string_view SessionPhaseName(SessionPhase phase) {
  switch (phase) {
    case SessionPhase::kForming:
      return "forming";
    case SessionPhase::kShort:
      return "short of members";
    case SessionPhase::kRunning:
      return "running";
    case SessionPhase::kStopping:
      return "stopping";
    case SessionPhase::kFinished:
      return "finished";
    case SessionPhase::kFailed:
      return "failed";
  }
  return "unknown";
}

Session::Session(SessionOptions options, TimePoint now)
    : options_(std::move(options)),
      now_(now),
      generation_(options_.first_generation),
      phase_since_(now),
      last_tick_(now),
      allowed_members_(world()),
      durable_step_(options_.durable_step) {
  for (int rank = 0; rank < world(); ++rank) ranks_[rank] = Rank{};
  const auto& lowest = options_.lowest_incarnations;
  for (int replica = 0; replica < options_.replicas; ++replica) {
    const auto at = static_cast<size_t>(replica);
    replicas_[replica].lowest_incarnation = at < lowest.size() ? lowest[at] : 0;
  }
}

session::Outputs Session::Connected(TimePoint now, ConnectionId connection,
                                    const wire::Hello& hello) {
  Begin(now);
  const std::string who = "replica " + std::to_string(hello.replica) + " incarnation " +
                          std::to_string(hello.incarnation);
  if (hello.job != options_.job || !SameSecret(hello.token, options_.token)) {
    Refuse(connection, who + ": wrong job or token");
    return Finish();
  }
  if (!replicas_.contains(hello.replica) || hello.processes != options_.processes_per_replica) {
    Refuse(connection, who + " with " + std::to_string(hello.processes) +
                           " processes does not belong to a job of " +
                           std::to_string(options_.replicas) + " replicas with " +
                           std::to_string(options_.processes_per_replica));
    return Finish();
  }
  Replica& replica = replicas_[hello.replica];
  if (hello.incarnation < std::max(replica.lowest_incarnation, replica.incarnation)) {
    Refuse(connection,
           who + " is older than incarnation " +
               std::to_string(std::max(replica.lowest_incarnation, replica.incarnation)));
    return Finish();
  }
  if (replica.incarnation >= 0 && hello.incarnation > replica.incarnation) {
    ReplicaGone(hello.replica, IncidentCause::kReplaced, 0, who + " took over");
  } else if (replica.connection != 0) {
    Emit(session::Close{replica.connection}, who + " connected again");
  }
  replica.connection = connection;
  replica.lowest_incarnation = replica.incarnation = hello.incarnation;
  replica.pod = hello.pod;
  replica.node = hello.node;
  replica.last_heard = now;
  replica.gone_since.reset();
  Emit(session::Send{connection, wire::Welcome{Seconds(options_.heartbeat_timeout)}},
       who + " connected");
  if (phase_ == SessionPhase::kRunning && !pending_) {
    Emit(session::Send{connection, current_}, who + " may have missed it");
  }
  if (stop_) Emit(session::Send{connection, *stop_}, stop_->reason);
  Emit(session::ReplicaConnected{hello}, who + " connected");
  return Finish();
}

session::Outputs Session::Disconnected(TimePoint now, ConnectionId connection) {
  Begin(now);
  for (auto& [number, replica] : replicas_) {
    if (replica.connection != connection) continue;
    replica.connection = 0;
    replica.gone_since = now;
  }
  GiveUpSilentReplicas();
  return Finish();
}

session::Outputs Session::Received(TimePoint now, ConnectionId connection,
                                   const wire::Message& message) {
  Begin(now);
  const auto found = std::ranges::find_if(
      replicas_, [&](const auto& entry) { return entry.second.connection == connection; });
  if (connection == 0 || found == replicas_.end()) return Finish();
  found->second.last_heard = now;
  const int replica = found->first;
  std::visit(
      [&](const auto& typed) {
        if constexpr (requires { On(replica, typed); }) {
          if constexpr (requires { typed.rank; }) {
            if (!ranks_.contains(typed.rank) || replica_of(typed.rank) != replica) {
              Refuse(connection, "replica " + std::to_string(replica) + " spoke for rank " +
                                     std::to_string(typed.rank));
              return;
            }
          }
          On(replica, typed);
        } else {
          Refuse(connection, "replica " + std::to_string(replica) + " sent a " +
                                 std::string(wire::TypeName(message)) +
                                 " message, which it must not");
        }
      },
      message);
  return Finish();
}

session::Outputs Session::Tick(TimePoint now) {
  Begin(now);
  // When this program itself stood still, what others said meanwhile is still unread: nobody is
  // silent because of it.
  const Duration gap = now - std::exchange(last_tick_, now);
  if (gap > options_.heartbeat_timeout / 2) {
    for (auto& [number, replica] : replicas_) {
      replica.last_heard += gap;
      if (replica.gone_since) *replica.gone_since += gap;
    }
  }
  GiveUpSilentReplicas();
  for (auto& [number, rank] : ranks_) {
    if (rank.left_since && now - *rank.left_since >= options_.settle_window) {
      rank.left_since.reset();
      RankDied(number, {.cause = IncidentCause::kExited});
    }
  }
  if (pending_ && persist_again_ && now >= *persist_again_) {
    persist_again_.reset();
    Emit(session::Persist{*pending_}, pending_reason_ + " (once more)");
  }
  RestartDueRanks();
  return Finish();
}

session::Outputs Session::Persisted(TimePoint now, uint64_t generation) {
  Begin(now);
  // A membership that was superseded while it was written is never announced.
  if (!pending_ || pending_->generation != generation || ended()) return Finish();
  current_ = *std::exchange(pending_, std::nullopt);
  persist_again_.reset();
  incidents_.Formed(generation);
  for (const auto& [number, replica] : replicas_) {
    if (replica.connection == 0) continue;
    Emit(session::Send{replica.connection, current_}, pending_reason_);
  }
  Emit(session::Formed{current_}, pending_reason_);
  return Finish();
}

session::Outputs Session::PersistFailed(TimePoint now, uint64_t generation,
                                        const std::string& /*why*/) {
  Begin(now);
  if (pending_ && pending_->generation == generation) {
    persist_again_ = now + options_.persist_retry;
  }
  return Finish();
}

session::Outputs Session::Decided(TimePoint now, int number, const RecoveryDecision& decision) {
  Begin(now);
  if (!ranks_.contains(number) || ended()) return Finish();
  Rank& rank = ranks_[number];
  incidents_.SetAction(number, decision.reason);
  switch (decision.kind) {
    case RecoveryDecision::Kind::kRestartInPlace:
      if (rank.state != RankState::kDead) break;
      rank.restart_due = now + decision.delay;
      rank.restart_reason = decision.reason;
      RestartDueRanks();
      break;
    case RecoveryDecision::Kind::kReplacePod:
      incidents_.RestartOrdered(now, number);
      break;
    case RecoveryDecision::Kind::kWait:
      break;
    case RecoveryDecision::Kind::kFail:
      return Fail(now, decision.reason);
  }
  return Finish();
}

session::Outputs Session::PodReplaced(TimePoint now, int number, int incarnation) {
  Begin(now);
  if (!replicas_.contains(number)) return Finish();
  Replica& replica = replicas_[number];
  replica.lowest_incarnation = std::max(replica.lowest_incarnation, incarnation);
  if (replica.incarnation < incarnation) {
    const std::string why = "incarnation " + std::to_string(incarnation) + " of replica " +
                            std::to_string(number) + " takes its place";
    if (replica.connection != 0) {
      Emit(session::Send{replica.connection, wire::Fenced{why}}, why);
    }
    ReplicaGone(number, IncidentCause::kReplaced, 0, why);
    for (int rank = 0; rank < world(); ++rank) {
      if (replica_of(rank) == number) incidents_.RestartOrdered(now, rank);
    }
  }
  return Finish();
}

session::Outputs Session::AllowMembers(TimePoint now, int count) {
  Begin(now);
  allowed_members_ = std::clamp(count, options_.min_members, world());
  return Finish();
}

session::Outputs Session::Fail(TimePoint now, const std::string& reason) {
  Begin(now);
  if (!ended()) {
    EndJob(SessionPhase::kFailed);
    Emit(session::JobFailed{-1}, reason);
  }
  return Finish();
}

session::Outputs Session::Stop(TimePoint now, Duration grace, const std::string& reason) {
  Begin(now);
  stop_ = wire::Stop{Seconds(grace), reason};
  for (const auto& [number, replica] : replicas_) {
    if (replica.connection != 0) Emit(session::Send{replica.connection, *stop_}, reason);
  }
  if (!ended()) EndJob(SessionPhase::kStopping);
  return Finish();
}

void Session::Refuse(ConnectionId connection, const std::string& why) {
  Emit(session::Send{connection, wire::Fenced{why}}, why);
  Emit(session::Close{connection}, why);
  for (auto& [number, replica] : replicas_) {
    if (replica.connection != connection) continue;
    replica.connection = 0;
    replica.gone_since = now_;
  }
}

void Session::GiveUpSilentReplicas() {
  for (auto& [number, replica] : replicas_) {
    const Duration silent = now_ - replica.last_heard;
    if (replica.connection != 0 && silent > options_.heartbeat_timeout) {
      ReplicaGone(number, IncidentCause::kVanished, Seconds(silent),
                  "its supervisor was silent for " + std::to_string(Milliseconds(silent)) + " ms");
      continue;
    }
    if (!replica.gone_since) continue;
    bool alive = false;
    for (const auto& [rank, entry] : ranks_) alive |= replica_of(rank) == number && IsAlive(rank);
    if (ended() || !alive || now_ - *replica.gone_since >= options_.reconnect_grace) {
      ReplicaGone(number, IncidentCause::kVanished, Seconds(silent),
                  "its supervisor's connection broke");
    }
  }
}

void Session::RestartDueRanks() {
  for (auto& [number, rank] : ranks_) {
    const Replica& replica = replicas_[replica_of(number)];
    if (!rank.restart_due || now_ < *rank.restart_due || replica.connection == 0) continue;
    rank.restart_due.reset();
    incidents_.RestartOrdered(now_, number);
    Emit(session::Send{replica.connection, wire::StartProcess{number}}, rank.restart_reason);
  }
}

void Session::EndJob(SessionPhase phase) {
  phase_ = phase;
  phase_since_ = now_;
  pending_.reset();
  incidents_.CloseAll();
  asks_.clear();
  for (auto& [number, rank] : ranks_) {
    rank.restart_due.reset();
    rank.left_since.reset();
  }
}

bool Session::ended() const {
  return phase_ == SessionPhase::kFinished || phase_ == SessionPhase::kFailed ||
         phase_ == SessionPhase::kStopping;
}

void Session::Emit(session::Action action, std::string reason) {
  outputs_.push_back({std::move(action), std::move(reason)});
}

session::Outputs Session::Finish() {
  Reconsider();
  // The survivors' next generation comes first; what becomes of the dead can wait that long.
  for (const Ask& ask : std::exchange(asks_, {})) {
    if (const Incident* incident = incidents_.Get(ask.incident)) {
      Emit(session::AskRecovery{ask.rank, ask.victim, *incident}, DescribeIncident(*incident));
    }
  }
  for (Incident& incident : incidents_.TakeChanged()) {
    const std::string reason = DescribeIncident(incident);
    Emit(session::IncidentUpdated{std::move(incident)}, reason);
  }
  return std::exchange(outputs_, {});
}

}  // namespace everstep
