#include "operator/rendezvous/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/frame_socket.h"

namespace everstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A slow loop that records what it is told.
class RecordingShell : public RendezvousEvents {
 public:
  void PersistMembership(const std::string& job, const wire::Membership& membership,
                         std::function<void(Status)> done) override {
    bool hold = false;
    {
      const std::lock_guard lock(mutex_);
      hold = hold_persists_;
      if (hold) held_.push_back(std::move(done));
    }
    Record("persist " + job + " " + std::to_string(membership.generation));
    if (!hold) done({});
  }
  void OnProcessDied(const std::string& job, const Incident& incident, int rank, bool,
                     std::function<void(RecoveryDecision)> decide) override {
    Record("died " + job + " " + std::to_string(rank) + " signal " +
           std::to_string(incident.signal));
    // From another thread, as where the answer is written first.
    std::thread([decide = std::move(decide)] {
      decide({RecoveryDecision::Kind::kRestartInPlace, {}, "in place"});
    }).detach();
  }
  void OnIncidentUpdated(const std::string& job, const Incident&) override {
    Record("incident " + job);
  }
  void OnMembership(const std::string& job, const wire::Membership& membership,
                    const std::string&) override {
    Record("membership " + job + " " + std::to_string(membership.generation));
  }
  void OnRegrouped(const std::string& job, uint64_t generation, int64_t) override {
    Record("regrouped " + job + " " + std::to_string(generation));
  }
  void OnProgress(const std::string& job, const wire::Progress& progress) override {
    Record("progress " + job + " " + std::to_string(progress.step));
  }
  void OnCheckpoint(const std::string& job, const wire::CheckpointSaved&) override {
    Record("checkpoint " + job);
  }
  void OnFinished(const std::string& job, const wire::Finished&) override {
    Record("finished " + job);
  }
  void OnFatal(const std::string& job, int, const std::string& reason) override {
    Record("fatal " + job + " " + reason);
  }
  void OnReplicaConnected(const std::string& job, const wire::Hello& hello) override {
    Record("connected " + job + " " + std::to_string(hello.replica));
  }
  void OnReplicaLost(const std::string& job, int replica, int, const std::string&) override {
    Record("lost " + job + " " + std::to_string(replica));
  }

  bool Await(const std::string& event, size_t count = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(kPatienceSeconds), [&] {
      return static_cast<size_t>(std::ranges::count(events_, event)) >= count;
    });
  }
  bool Has(const std::string& event) {
    const std::lock_guard lock(mutex_);
    return std::ranges::count(events_, event) > 0;
  }

  void HoldPersists() {
    const std::lock_guard lock(mutex_);
    hold_persists_ = true;
  }
  // Answers the persist request number `index`.
  void Answer(size_t index, const Status& status) {
    std::function<void(Status)> done;
    {
      const std::lock_guard lock(mutex_);
      done = held_.at(index);
    }
    done(status);
  }

 private:
  void Record(std::string event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> events_;
  bool hold_persists_ = false;
  std::vector<std::function<void(Status)>> held_;
};

class RendezvousServerTest : public testing::Test {
 protected:
  RendezvousServerTest() : server_(Start()) {}

  std::unique_ptr<RendezvousServer> Start() {
    auto server = RendezvousServer::Start({}, shell_);
    EXPECT_TRUE(server.has_value());
    return std::move(*server);
  }
  void AddJob(const std::string& name, int replicas = 2) {
    SessionOptions options;
    options.job = name;
    options.token = "secret";
    options.replicas = replicas;
    // Nothing here may depend on how fast this machine is.
    options.heartbeat_timeout = std::chrono::minutes(5);
    options.reconnect_grace = std::chrono::milliseconds(1);
    server_->AddJob(options);
  }
  FrameSocket Connect(const std::string& job, int replica) {
    auto socket = FrameSocket::Connect(server_->port());
    EXPECT_TRUE(socket.Send(wire::Hello{.job = job,
                                        .token = "secret",
                                        .replica = replica,
                                        .incarnation = 0,
                                        .processes = 1,
                                        .pod = "pod",
                                        .node = "node"}));
    EXPECT_TRUE(socket.Await<wire::Welcome>().has_value());
    return socket;
  }

  RecordingShell shell_;
  std::unique_ptr<RendezvousServer> server_;
};

TEST_F(RendezvousServerTest, LeadsAJobFromHelloThroughADeathToTheEnd) {
  AddJob("a");
  auto first = Connect("a", 0);
  auto second = Connect("a", 1);
  first.Send(wire::Ready{0, "e0"});
  second.Send(wire::Ready{1, "e1"});
  auto membership = first.Await<wire::Membership>();
  ASSERT_TRUE(membership.has_value());
  EXPECT_EQ(membership->members.size(), 2u);
  ASSERT_TRUE(second.Await<wire::Membership>().has_value());
  first.Send(wire::Regrouped{0, 1, 0});
  second.Send(wire::Regrouped{1, 1, 0});
  ASSERT_TRUE(shell_.Await("regrouped a 1"));

  second.Send(wire::ProcessDied{
      .rank = 1, .generation = 1, .cause = wire::DeathCause::kSignaled, .signal = 9});
  membership = first.Await<wire::Membership>();
  ASSERT_TRUE(membership.has_value());
  EXPECT_EQ(membership->generation, 2u);
  EXPECT_THAT(membership->members[0].logical_ranks, ElementsAre(0, 1));
  EXPECT_EQ(second.Await<wire::StartProcess>()->rank, 1);
  EXPECT_TRUE(shell_.Await("died a 1 signal 9"));
  EXPECT_TRUE(shell_.Await("persist a 2"));

  first.Send(wire::Progress{.rank = 0, .generation = 2, .step = 1});
  first.Send(wire::CheckpointSaved{.rank = 0, .path = "p", .warning = ""});
  first.Send(wire::Finished{0, 1, "out"});
  EXPECT_TRUE(shell_.Await("progress a 1"));
  EXPECT_TRUE(shell_.Await("checkpoint a"));
  EXPECT_TRUE(shell_.Await("finished a"));
  first.Close();
  EXPECT_TRUE(shell_.Await("lost a 0"));
}

TEST_F(RendezvousServerTest, SendsAMembershipOnlyOnceItIsPersisted) {
  shell_.HoldPersists();
  AddJob("a", 1);
  auto socket = Connect("a", 0);
  socket.Send(wire::Ready{0, "e"});
  ASSERT_TRUE(shell_.Await("persist a 1"));
  // Whatever is sent afterwards comes before the membership.
  server_->Stop("a", std::chrono::seconds(1), "marker");
  const auto next = socket.Read();
  ASSERT_TRUE(next.has_value());
  EXPECT_TRUE(std::holds_alternative<wire::Stop>(*next));
  EXPECT_FALSE(shell_.Has("membership a 1"));
}

TEST_F(RendezvousServerTest, WritesAgainAfterAnError) {
  shell_.HoldPersists();
  AddJob("a", 1);
  auto socket = Connect("a", 0);
  socket.Send(wire::Ready{0, "e"});
  ASSERT_TRUE(shell_.Await("persist a 1"));
  shell_.Answer(0, Unavailable("conflict"));
  ASSERT_TRUE(shell_.Await("persist a 1", 2));
  shell_.Answer(1, {});
  EXPECT_EQ(socket.Await<wire::Membership>()->generation, 1u);
}

TEST_F(RendezvousServerTest, ConfirmationsMayComeLaterThanTheServerLives) {
  shell_.HoldPersists();
  AddJob("a", 1);
  auto socket = Connect("a", 0);
  socket.Send(wire::Ready{0, "e"});
  ASSERT_TRUE(shell_.Await("persist a 1"));
  server_.reset();
  shell_.Answer(0, {});
  EXPECT_FALSE(shell_.Has("membership a 1"));
}

TEST_F(RendezvousServerTest, HostileClientsDisturbNobody) {
  AddJob("a", 1);
  auto good = Connect("a", 0);

  std::vector<std::string> attacks = {
      std::string("\xff\xff\xff\xff", 4),
      std::string("\0\0\0\2{}", 6),
      std::string("\0\0\0\5hello", 9),
      std::string("GET / HTTP/1.1\r\n\r\n"),
      wire::EncodeFrame(wire::Ready{0, "stolen"}),
      wire::EncodeFrame(wire::Membership{.generation = 99, .members = {}}),
      wire::EncodeFrame(wire::Hello{.job = "nowhere", .token = "", .pod = "", .node = ""}),
      wire::EncodeFrame(wire::Hello{.job = "a", .token = "guess", .pod = "", .node = ""}),
      wire::EncodeFrame(
          wire::Hello{.job = "a", .token = "secret", .replica = 77, .pod = "", .node = ""}),
  };
  for (const std::string& attack : attacks) {
    auto bad = FrameSocket::Connect(server_->port());
    ASSERT_TRUE(bad.SendBytes(attack));
    EXPECT_TRUE(bad.AwaitClosed());
  }
  good.Send(wire::Ready{0, "honest"});
  const auto membership = good.Await<wire::Membership>();
  ASSERT_TRUE(membership.has_value());
  EXPECT_EQ(membership->generation, 1u);
  EXPECT_EQ(membership->members[0].endpoint, "honest");
}

TEST_F(RendezvousServerTest, AnUnfinishedFrameHoldsUpNobodyElse) {
  AddJob("a", 1);
  auto stuck = FrameSocket::Connect(server_->port());
  ASSERT_TRUE(stuck.SendBytes(std::string("\0\x10\0\0half", 8)));
  auto good = Connect("a", 0);
  good.Send(wire::Ready{0, "e"});
  EXPECT_TRUE(good.Await<wire::Membership>().has_value());
}

TEST_F(RendezvousServerTest, AFrameInPiecesIsWhole) {
  AddJob("a", 1);
  auto socket = Connect("a", 0);
  for (char byte : wire::EncodeFrame(wire::Ready{0, "e"})) {
    ASSERT_TRUE(socket.SendBytes({&byte, 1}));
  }
  EXPECT_TRUE(socket.Await<wire::Membership>().has_value());
}

TEST_F(RendezvousServerTest, JobsDoNotKnowOfEachOther) {
  AddJob("a", 1);
  AddJob("b", 1);
  auto a = Connect("a", 0);
  auto b = Connect("b", 0);
  a.Send(wire::Fatal{0, "bad data"});
  EXPECT_TRUE(shell_.Await("fatal a bad data"));
  b.Send(wire::Ready{0, "e"});
  EXPECT_TRUE(b.Await<wire::Membership>().has_value());

  server_->RemoveJob("b");
  EXPECT_TRUE(b.AwaitClosed());
  a.Send(wire::Progress{.rank = 0, .step = 5});
  EXPECT_TRUE(shell_.Await("progress a 5"));
}

TEST_F(RendezvousServerTest, CommandsReachTheSupervisors) {
  AddJob("a", 2);
  auto first = Connect("a", 0);
  auto second = Connect("a", 1);
  first.Send(wire::Ready{0, "e"});
  server_->AllowMembers("a", 1);
  // The order of a command and of a message on a socket is open; the result is not.
  EXPECT_EQ(first.Await<wire::Membership>()->members.size(), 1u);
  server_->PodReplaced("a", 1, 5);
  EXPECT_TRUE(second.Await<wire::Fenced>().has_value());
  EXPECT_TRUE(second.AwaitClosed());
  server_->Stop("a", std::chrono::seconds(3), "suspended");
  EXPECT_EQ(first.Await<wire::Stop>()->reason, "suspended");
  server_->Stop("unknown", std::chrono::seconds(3), "nobody");
}

TEST_F(RendezvousServerTest, APortInUseIsNamed) {
  const auto second =
      RendezvousServer::Start({.address = "127.0.0.1", .port = server_->port()}, shell_);
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message,
              HasSubstr("127.0.0.1:" + std::to_string(server_->port()) + ": cannot listen"));
  EXPECT_FALSE(RendezvousServer::Start({.address = "nowhere"}, shell_).has_value());
}

}  // namespace
}  // namespace everstep
