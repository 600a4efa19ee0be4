// A session under hand-made times, with the world around it: supervisors that connect and speak,
// and a slow loop that persists when it is told to.
#ifndef EVERSTEP_TESTS_UNIT_OPERATOR_RENDEZVOUS_SESSION_FIXTURE_H_
#define EVERSTEP_TESTS_UNIT_OPERATOR_RENDEZVOUS_SESSION_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/rendezvous/session.h"

namespace everstep {

class SessionWorld {
 public:
  SessionWorld() : SessionWorld(DefaultOptions()) {}
  explicit SessionWorld(const SessionOptions& options) : options(options), session(options, now) {}

  // Four replicas of one process.
  static SessionOptions DefaultOptions(int replicas = 4, int processes = 1) {
    SessionOptions options;
    options.job = "job";
    options.token = "secret";
    options.replicas = replicas;
    options.processes_per_replica = processes;
    return options;
  }

  // ---- Inputs; each returns what came out ----
  session::Outputs Connect(int replica, int incarnation = 0) {
    const ConnectionId connection = ++connections;
    auto out = Note(session.Connected(
        now, connection,
        wire::Hello{.job = "job",
                    .token = "secret",
                    .replica = replica,
                    .incarnation = incarnation,
                    .processes = options.processes_per_replica,
                    .pod = "job-" + std::to_string(replica) + "-" + std::to_string(incarnation),
                    .node = "node"}));
    connection_of[replica] = connection;
    return out;
  }
  session::Outputs Disconnect(int replica) {
    return Note(session.Disconnected(now, std::exchange(connection_of[replica], 0)));
  }
  session::Outputs Say(const auto& message) {
    return SayFrom(message.rank / options.processes_per_replica, message);
  }
  session::Outputs SayFrom(int replica, const wire::Message& message) {
    return Note(session.Received(now, connection_of[replica], message));
  }
  session::Outputs Start(int rank) {
    return Say(wire::ProcessStarted{.rank = rank, .pid = ++pids});
  }
  session::Outputs Ready(int rank) {
    return Say(wire::Ready{.rank = rank, .endpoint = "127.0.0.1:" + std::to_string(1000 + rank)});
  }
  session::Outputs Kill(int rank, int signal = 9) {
    return Say(wire::ProcessDied{.rank = rank,
                                 .generation = 0,
                                 .cause = wire::DeathCause::kSignaled,
                                 .signal = signal,
                                 .detect_seconds = 0.025});
  }
  session::Outputs Exit(int rank, int code) {
    return Say(wire::ProcessDied{
        .rank = rank, .generation = 0, .cause = wire::DeathCause::kExited, .exit_code = code});
  }
  session::Outputs Tick(Duration by) {
    now += by;
    return Note(session.Tick(now));
  }
  // Time passes in small steps while all connected supervisors beat.
  session::Outputs Pass(Duration by) {
    session::Outputs all;
    const Duration step = std::chrono::milliseconds(50);
    for (Duration done{}; done < by; done += step) {
      for (const auto& [replica, connection] : connection_of) {
        if (connection != 0) Append(all, SayFrom(replica, wire::Heartbeat{}));
      }
      Append(all, Tick(step));
    }
    return all;
  }
  // Persists what was output last.
  session::Outputs Persist() {
    EXPECT_TRUE(to_persist.has_value());
    if (!to_persist) return {};
    return Note(session.Persisted(now, std::exchange(to_persist, std::nullopt)->generation));
  }
  session::Outputs RegroupAll(int64_t step = 0) {
    session::Outputs all;
    const wire::Membership membership = session.membership();
    for (const wire::Member& member : membership.members) {
      Append(all, Say(wire::Regrouped{member.rank, membership.generation, step}));
    }
    return all;
  }
  session::Outputs Progress(int64_t step, int rank = 0) {
    return Say(
        wire::Progress{.rank = rank, .generation = session.membership().generation, .step = step});
  }

  // All ranks in a settled first generation, `step` steps done.
  void Train(int64_t step = 0) {
    for (int replica = 0; replica < options.replicas; ++replica) Connect(replica);
    for (int rank = 0; rank < World(); ++rank) Start(rank);
    for (int rank = 0; rank < World(); ++rank) Ready(rank);
    Persist();
    RegroupAll(0);
    if (step > 0) Progress(step);
  }
  void Restart(int rank) {
    session.Decided(now, rank, {RecoveryDecision::Kind::kRestartInPlace, {}, "again"});
    Start(rank);
  }

  int World() const { return options.replicas * options.processes_per_replica; }

  static void Append(session::Outputs& all, session::Outputs more) {
    for (auto& output : more) all.push_back(std::move(output));
  }

  SessionOptions options;
  TimePoint now{std::chrono::hours(1)};
  Session session;
  std::map<int, ConnectionId> connection_of;
  ConnectionId connections = 0;
  int64_t pids = 100;
  std::optional<wire::Membership> to_persist;
  std::vector<Incident> incidents;  // every update
  std::vector<session::Output> log;

 private:
  session::Outputs Note(session::Outputs outputs) {
    for (const session::Output& output : outputs) {
      EXPECT_FALSE(output.reason.empty());
      if (const auto* persist = std::get_if<session::Persist>(&output.action)) {
        to_persist = persist->membership;
      }
      if (const auto* updated = std::get_if<session::IncidentUpdated>(&output.action)) {
        incidents.push_back(updated->incident);
      }
      log.push_back(output);
    }
    return outputs;
  }
};

// All actions of one kind.
template <typename T>
std::vector<T> Of(const session::Outputs& outputs) {
  std::vector<T> found;
  for (const session::Output& output : outputs) {
    if (const auto* action = std::get_if<T>(&output.action)) found.push_back(*action);
  }
  return found;
}

// All messages of one kind that were sent.
template <typename T>
std::vector<T> Sent(const session::Outputs& outputs) {
  std::vector<T> found;
  for (const session::Send& send : Of<session::Send>(outputs)) {
    if (const auto* message = std::get_if<T>(&send.message)) found.push_back(*message);
  }
  return found;
}

inline std::vector<int> RanksOf(const wire::Membership& membership) {
  std::vector<int> ranks;
  for (const wire::Member& member : membership.members) ranks.push_back(member.rank);
  return ranks;
}

inline std::vector<int> NewcomersOf(const wire::Membership& membership) {
  std::vector<int> ranks;
  for (const wire::Member& member : membership.members) {
    if (member.newcomer) ranks.push_back(member.rank);
  }
  return ranks;
}

}  // namespace everstep

#endif  // EVERSTEP_TESTS_UNIT_OPERATOR_RENDEZVOUS_SESSION_FIXTURE_H_
