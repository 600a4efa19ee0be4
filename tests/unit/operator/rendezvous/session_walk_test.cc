// Random walks: whatever happens in whatever order, the session keeps its promises.
#include <algorithm>
#include <numeric>
#include <random>

#include "tests/unit/operator/rendezvous/session_fixture.h"

namespace everstep {
namespace {

constexpr int kSeeds = 200;
constexpr int kEvents = 400;

class Walk {
 public:
  explicit Walk(unsigned seed)
      : random_(seed), world_(SessionWorld::DefaultOptions(1 + Pick(4), 1 + Pick(2))) {
    for (int rank = 0; rank < world_.World(); ++rank) processes_[rank];
  }

  void Run() {
    for (int i = 0; i < kEvents && !testing::Test::HasFailure(); ++i) Check(Event());
  }

  // Left alone and healthy again, the job trains with all its ranks.
  void HealAndExpectFullStrength() {
    for (int replica = 0; replica < world_.options.replicas; ++replica) {
      if (!Connected(replica)) Check(Connect(replica));
    }
    for (int round = 0; round < 60; ++round) {
      for (int rank = 0; rank < world_.World(); ++rank) {
        if (!Connected(rank / world_.options.processes_per_replica)) {
          Check(Connect(rank / world_.options.processes_per_replica));
        }
        if (!processes_[rank].running) Check(Start(rank));
        if (!processes_[rank].ready) Check(Ready(rank));
      }
      if (world_.to_persist) Check(world_.Persist());
      Check(world_.RegroupAll(step_));
      Check(world_.Pass(std::chrono::seconds(1)));
    }
    EXPECT_EQ(world_.session.phase(), SessionPhase::kRunning);
    EXPECT_EQ(world_.session.membership().members.size(), static_cast<size_t>(world_.World()));
  }

 private:
  struct Process {
    bool running = false;
    bool ready = false;
  };

  int Pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  bool Connected(int replica) { return world_.connection_of[replica] != 0; }

  session::Outputs Connect(int replica) {
    auto out = world_.Connect(replica, incarnation_[replica]);
    // As a supervisor does: says again what it has. Processes of a lost pod are gone.
    for (int local = 0; local < world_.options.processes_per_replica; ++local) {
      processes_[replica * world_.options.processes_per_replica + local] = {};
    }
    return out;
  }
  session::Outputs Start(int rank) {
    processes_[rank] = {.running = true, .ready = false};
    return world_.Start(rank);
  }
  session::Outputs Ready(int rank) {
    processes_[rank].ready = true;
    return world_.Ready(rank);
  }

  session::Outputs Event() {
    const int rank = Pick(world_.World());
    const int replica = rank / world_.options.processes_per_replica;
    Process& process = processes_[rank];
    switch (Pick(14)) {
      case 0:
        return Connected(replica) ? session::Outputs{} : Connect(replica);
      case 1:
        if (Pick(4) != 0 || !Connected(replica)) return {};
        ++incarnation_[replica];  // the pod is lost; the next is a new one
        return world_.Disconnect(replica);
      case 2:
      case 3:
        return Connected(replica) && !process.running ? Start(rank) : session::Outputs{};
      case 4:
      case 5:
      case 6:
        return Connected(replica) && process.running && !process.ready ? Ready(rank)
                                                                       : session::Outputs{};
      case 7:
        if (!Connected(replica) || !process.running) return {};
        process = {};
        return Pick(2) == 0 ? world_.Kill(rank) : world_.Exit(rank, 1);
      case 8:
      case 9:
        return world_.to_persist ? world_.Persist() : session::Outputs{};
      case 10:
        return world_.RegroupAll(step_);
      case 11:
        return world_.Progress(++step_, rank);
      case 12:
        return world_.Say(
            wire::PeerLost{rank, world_.session.membership().generation, Pick(world_.World())});
      default:
        return world_.Pass(std::chrono::milliseconds(50 * (1 + Pick(8))));
    }
  }

  void Check(const session::Outputs& outputs) {
    for (const session::Output& output : outputs) {
      if (const auto* persist = std::get_if<session::Persist>(&output.action)) {
        CheckProposal(persist->membership);
      }
      if (const auto* send = std::get_if<session::Send>(&output.action)) {
        if (const auto* sent = std::get_if<wire::Membership>(&send->message)) {
          // Nothing is sent before it is persisted, nor once something newer has been formed.
          EXPECT_EQ(sent->generation, world_.session.membership().generation);
          EXPECT_TRUE(proposals_.contains(sent->generation));
          EXPECT_EQ(wire::ToJson(*sent), proposals_[sent->generation]);
        }
      }
    }
  }

  void CheckProposal(const wire::Membership& membership) {
    if (!proposals_.empty()) {
      EXPECT_GT(membership.generation, proposals_.rbegin()->first);
    }
    proposals_[membership.generation] = wire::ToJson(membership);
    std::vector<int> hosted;
    int last = -1;
    for (const wire::Member& member : membership.members) {
      EXPECT_GT(member.rank, last);
      last = member.rank;
      EXPECT_FALSE(member.logical_ranks.empty());
      EXPECT_TRUE(processes_[member.rank].ready || !Connected(ReplicaOf(member.rank)))
          << "rank " << member.rank << " is known to be dead";
      hosted.insert(hosted.end(), member.logical_ranks.begin(), member.logical_ranks.end());
    }
    std::ranges::sort(hosted);
    std::vector<int> all(static_cast<size_t>(world_.World()));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(hosted, all);
  }
  int ReplicaOf(int rank) const { return rank / world_.options.processes_per_replica; }

  std::mt19937 random_;
  SessionWorld world_;
  std::map<int, Process> processes_;
  std::map<int, int> incarnation_;
  std::map<uint64_t, Json> proposals_;
  int64_t step_ = 0;
};

TEST(SessionWalkTest, KeepsItsPromisesAndComesBackToFullStrength) {
  for (unsigned seed = 0; seed < kSeeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Walk walk(seed);
    walk.Run();
    walk.HealAndExpectFullStrength();
  }
}

}  // namespace
}  // namespace everstep
