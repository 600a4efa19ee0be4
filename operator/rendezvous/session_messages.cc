// What a session does with each message of a supervisor, and with deaths.
#include <algorithm>
#include <set>

#include "operator/rendezvous/session.h"

namespace everstep {
namespace {

constexpr std::chrono::seconds kLatecomersGrace{1};

IncidentCause CauseOf(wire::DeathCause cause) {
  switch (cause) {
    case wire::DeathCause::kExited:
      return IncidentCause::kExited;
    case wire::DeathCause::kSignaled:
      return IncidentCause::kSignaled;
    case wire::DeathCause::kHung:
      return IncidentCause::kHung;
    case wire::DeathCause::kStartFailed:
      return IncidentCause::kStartFailed;
  }
  return IncidentCause::kExited;
}

}  // namespace

void Session::On(int replica, const wire::ProcessStarted& message) {
  Rank& rank = ranks_[message.rank];
  if (IsAlive(message.rank)) {
    if (rank.pid == message.pid) return;  // said again after a reconnect
    RankDied(message.rank, {.cause = IncidentCause::kVanished});
  }
  (void)replica;
  rank = Rank{};
  rank.state = RankState::kStarting;
  rank.pid = message.pid;
}

void Session::On(int replica, const wire::Ready& message) {
  Rank& rank = ranks_[message.rank];
  switch (rank.state) {
    case RankState::kMember:
    case RankState::kFinished:
    case RankState::kDead:  // it was said before the death and came after it
      return;
    case RankState::kReady:
      rank.endpoint = message.endpoint;
      return;
    case RankState::kAbsent:
    case RankState::kStarting:
      break;
  }
  if (message.generation > 0 && phase_ != SessionPhase::kForming && !ended()) {
    // It was given up and others took over its share: what it holds is of a past generation.
    Refuse(replicas_[replica].connection,
           "rank " + std::to_string(message.rank) + " is of generation " +
               std::to_string(message.generation) + " and no member any more");
    rank.state = RankState::kDead;
    return;
  }
  rank.state = RankState::kReady;
  rank.endpoint = message.endpoint;
  rank.ready_since = now_;
  rank.holds_state = message.generation > 0;
  incidents_.RankReady(now_, message.rank);
}

void Session::On(int /*replica*/, const wire::Regrouped& message) {
  Rank& rank = ranks_[message.rank];
  if (rank.state != RankState::kMember || message.generation > current_.generation) return;
  rank.holds_state = true;
  if (message.generation <= rank.regrouped) return;
  rank.regrouped = message.generation;
  if (!Settled()) return;
  std::vector<int> members;
  for (const wire::Member& member : current_.members) members.push_back(member.rank);
  last_step_ = message.step;
  incidents_.AllRegrouped(now_, current_.generation, message.step, members);
  Emit(session::Regrouped{current_.generation, message.step},
       "all " + std::to_string(members.size()) + " members of generation " +
           std::to_string(current_.generation) + " continue after step " +
           std::to_string(message.step));
}

void Session::On(int /*replica*/, const wire::PeerLost& message) {
  // One that a membership has answered already is an echo. Members may be in an older generation
  // than the newest when that one is planned.
  if (message.generation < newest_unplanned_) return;
  if (!exchange_broken_) exchange_broken_ = now_;
  // A second witness: no need to wait whether the supervisor comes back, or why a member left.
  const auto lost = ranks_.find(message.lost_rank);
  if (lost == ranks_.end() || !IsAlive(message.lost_rank)) return;
  if (lost->second.left_since) {
    lost->second.left_since.reset();
    RankDied(message.lost_rank, {.cause = IncidentCause::kExited});
    return;
  }
  const Replica& gone = replicas_[replica_of(message.lost_rank)];
  if (gone.gone_since) {
    ReplicaGone(
        replica_of(message.lost_rank), IncidentCause::kVanished, Seconds(now_ - gone.last_heard),
        "its supervisor's connection broke and rank " + std::to_string(message.rank) + " lost it");
  }
}

void Session::On(int /*replica*/, const wire::Progress& message) {
  if (message.generation == current_.generation && Settled()) {
    incidents_.StepCompleted(now_);
    last_step_ = message.step;
  } else {
    last_step_ = std::max(last_step_, message.step);
  }
  Emit(session::Progressed{message}, "step " + std::to_string(message.step));
}

void Session::On(int /*replica*/, const wire::CheckpointSaved& message) {
  if (message.warning.empty()) durable_step_ = std::max(durable_step_, message.step);
  Emit(session::Checkpointed{message},
       message.warning.empty() ? "checkpoint of step " + std::to_string(message.step) + " is saved"
                               : message.warning);
}

void Session::On(int /*replica*/, const wire::Finished& message) {
  Rank& rank = ranks_[message.rank];
  const bool was_member = rank.state == RankState::kMember;
  rank.state = RankState::kFinished;
  if (phase_ == SessionPhase::kFinished || phase_ == SessionPhase::kFailed) return;
  // A member speaks for the job. A program that never joined a generation speaks for itself.
  const bool all = RanksIn(RankState::kFinished).size() == ranks_.size();
  if (!was_member && !all) return;
  EndJob(SessionPhase::kFinished);
  Emit(session::JobFinished{message},
       "rank " + std::to_string(message.rank) + " has finished the job");
  StopLatecomers();
}

// Members leave by themselves. A process that is on its way to them would wait for ever (also one
// that a planned generation names, which the others no longer came to), as would one that comes
// later.
void Session::StopLatecomers() {
  stop_ = wire::Stop{Seconds(kLatecomersGrace), "the job is done"};
  std::set<int> late;
  for (const auto& [number, rank] : ranks_) {
    const bool took_part = rank.state == RankState::kMember && rank.regrouped > 0;
    if (!took_part && rank.state != RankState::kFinished) late.insert(replica_of(number));
  }
  for (int number : late) {
    const Replica& replica = replicas_[number];
    if (replica.connection != 0) {
      Emit(session::Send{replica.connection, *stop_}, stop_->reason);
    }
  }
}

void Session::On(int /*replica*/, const wire::Fatal& message) {
  if (phase_ == SessionPhase::kFinished || phase_ == SessionPhase::kFailed) return;
  EndJob(SessionPhase::kFailed);
  Emit(session::JobFailed{message.rank}, message.reason);
}

void Session::On(int /*replica*/, const wire::ProcessDied& message) {
  Rank& rank = ranks_[message.rank];
  const bool left = message.cause == wire::DeathCause::kExited && message.exit_code == 0;
  if (left && rank.state == RankState::kMember && !ended()) {
    rank.left_since = now_;
    return;
  }
  RankDied(message.rank, {.cause = CauseOf(message.cause),
                          .exit_code = message.exit_code,
                          .signal = message.signal,
                          .detect_seconds = message.detect_seconds});
}

void Session::On(int /*replica*/, const wire::LastWords& message) {
  incidents_.SetLastWords(message.rank, message.text, message.exit_code, message.signal);
}

void Session::On(int /*replica*/, const wire::Heartbeat& /*message*/) {}

bool Session::IsVictim(int rank, const Death& death) const {
  return death.cause == IncidentCause::kExited && death.exit_code != 0 &&
         !options_.fatal_exit_codes.contains(death.exit_code) &&
         ranks_.at(rank).state == RankState::kMember &&
         incidents_.RootCause(now_, options_.settle_window) != 0;
}

void Session::RankDied(int number, const Death& death, uint64_t* group) {
  if (!IsAlive(number)) {
    // A process that could not be started was dead before; it is news all the same.
    if (death.cause != IncidentCause::kStartFailed) return;
  }
  Rank& rank = ranks_[number];
  const bool was_member = rank.state == RankState::kMember;
  const bool victim = IsVictim(number, death);
  rank.state = RankState::kDead;
  rank.holds_state = false;
  rank.left_since.reset();
  if (ended()) return;

  uint64_t id = 0;
  if (victim) {
    id = incidents_.RootCause(now_, options_.settle_window);
  } else if (group != nullptr) {
    id = *group;
  }
  if (id != 0) {
    incidents_.AddRank(id, number);
  } else {
    const Replica& replica = replicas_[replica_of(number)];
    Incident incident;
    incident.cause = death.cause;
    incident.rank = number;
    incident.replica = replica_of(number);
    incident.incarnation = replica.incarnation;
    incident.pod = replica.pod;
    incident.node = replica.node;
    incident.exit_code = death.exit_code;
    incident.signal = death.signal;
    incident.was_member = was_member;
    incident.generation_before = newest().generation;
    incident.interrupted_step = last_step_;
    incident.stages.detect_seconds = death.detect_seconds;
    id = incidents_.Open(now_, std::move(incident));
    if (group != nullptr) *group = id;
  }
  asks_.push_back({number, id, victim});
}

void Session::ReplicaGone(int number, IncidentCause cause, double silent_seconds,
                          const std::string& why) {
  Replica& replica = replicas_[number];
  const bool known = replica.connection != 0 || replica.gone_since.has_value();
  if (replica.connection != 0) Emit(session::Close{replica.connection}, why);
  replica.connection = 0;
  replica.gone_since.reset();
  uint64_t group = 0;
  // Members first: the incident is about what training lost.
  for (const bool members : {true, false}) {
    for (const auto& [rank, entry] : ranks_) {
      if (replica_of(rank) != number || (entry.state == RankState::kMember) != members) continue;
      RankDied(rank, {.cause = cause, .detect_seconds = silent_seconds}, &group);
    }
  }
  if (known) {
    Emit(session::ReplicaLost{number, replica.incarnation},
         "replica " + std::to_string(number) + ": " + why);
  }
}

}  // namespace everstep
