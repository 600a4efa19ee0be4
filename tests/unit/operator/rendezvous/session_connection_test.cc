// Supervisors that come, go, fall silent, come back or should not be there.
#include "tests/unit/operator/rendezvous/session_fixture.h"

namespace everstep {
namespace {

using session::AskRecovery;
using session::Close;
using session::Persist;
using session::ReplicaConnected;
using session::ReplicaLost;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(SessionConnectionTest, ASilentSupervisorIsDeadAfterTheTimeout) {
  SessionWorld world;
  world.Train();
  session::Outputs out;
  for (int i = 0; i < 22 && Of<ReplicaLost>(out).empty(); ++i) {
    for (int replica : {0, 1, 3}) world.SayFrom(replica, wire::Heartbeat{});
    SessionWorld::Append(out, world.Tick(milliseconds(50)));
  }
  ASSERT_THAT(Of<ReplicaLost>(out), SizeIs(1));
  ASSERT_THAT(Of<AskRecovery>(out), SizeIs(1));
  const Incident incident = Of<AskRecovery>(out)[0].incident;
  EXPECT_EQ(incident.cause, IncidentCause::kVanished);
  EXPECT_EQ(incident.rank, 2);
  EXPECT_NEAR(*incident.stages.detect_seconds, 1.05, 0.001);
  EXPECT_THAT(Of<Close>(out), SizeIs(1));
}

TEST(SessionConnectionTest, NobodyIsSilentBecauseRendezvousItselfStoodStill) {
  SessionWorld world;
  world.Train();
  EXPECT_THAT(world.Tick(seconds(30)), IsEmpty());
  EXPECT_THAT(Of<ReplicaLost>(world.Pass(seconds(3))), IsEmpty());
}

TEST(SessionConnectionTest, ABrokenConnectionMayComeBackInTime) {
  SessionWorld world;
  world.Train();
  EXPECT_THAT(world.Disconnect(2), IsEmpty());
  world.now += milliseconds(80);
  const auto out = world.Connect(2);
  EXPECT_THAT(Sent<wire::Welcome>(out), SizeIs(1));
  EXPECT_THAT(Sent<wire::Membership>(out), SizeIs(1));  // it may have missed it
  // The supervisor says again what it has; that changes nothing.
  world.SayFrom(2, wire::ProcessStarted{2, 103});
  world.SayFrom(2, wire::Ready{2, "127.0.0.1:1002", 1});
  EXPECT_THAT(Of<Persist>(world.Pass(seconds(2))), IsEmpty());
}

TEST(SessionConnectionTest, ABrokenConnectionThatStaysBrokenIsADeath) {
  SessionWorld world;
  world.Train();
  world.Disconnect(2);
  EXPECT_THAT(Of<Persist>(world.Pass(milliseconds(50))), IsEmpty());
  const auto out = world.Pass(milliseconds(50));
  EXPECT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_THAT(Of<ReplicaLost>(out), SizeIs(1));
}

TEST(SessionConnectionTest, APeerThatLostItConfirmsItAtOnce) {
  SessionWorld world;
  world.Train();
  world.Disconnect(2);
  const auto out = world.Say(wire::PeerLost{1, 1, 2});
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_THAT(RanksOf(Of<Persist>(out)[0].membership), ElementsAre(0, 1, 3));
}

TEST(SessionConnectionTest, APodsRanksAreOneIncident) {
  SessionWorld world(SessionWorld::DefaultOptions(2, 2));
  world.Train(3);
  world.Disconnect(1);
  const auto out = world.Pass(milliseconds(100));
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_THAT(RanksOf(Of<Persist>(out)[0].membership), ElementsAre(0, 1));
  ASSERT_THAT(Of<AskRecovery>(out), SizeIs(2));  // each needs a process
  EXPECT_EQ(Of<AskRecovery>(out)[0].incident.id, Of<AskRecovery>(out)[1].incident.id);
  EXPECT_THAT(world.incidents.back().further_ranks, ElementsAre(3));
}

TEST(SessionConnectionTest, AnOlderIncarnationIsFenced) {
  SessionWorld world;
  world.Connect(1, 3);
  const ConnectionId good = world.connection_of[1];
  const auto out = world.Connect(1, 2);
  EXPECT_THAT(Sent<wire::Fenced>(out), SizeIs(1));
  EXPECT_THAT(Of<Close>(out), SizeIs(1));
  EXPECT_THAT(Of<ReplicaConnected>(out), IsEmpty());
  // And what it says is not heard; the good one is.
  EXPECT_THAT(world.Ready(1), IsEmpty());
  world.connection_of[1] = good;
  world.Ready(1);
}

TEST(SessionConnectionTest, ANewIncarnationTakesOver) {
  SessionWorld world;
  world.Train();
  const auto out = world.Connect(2, 1);
  EXPECT_THAT(Of<Close>(out), SizeIs(1));
  ASSERT_THAT(Of<AskRecovery>(out), SizeIs(1));
  EXPECT_EQ(Of<AskRecovery>(out)[0].incident.cause, IncidentCause::kReplaced);
  world.Persist();
  world.RegroupAll(1);
  world.Start(2);
  EXPECT_THAT(Of<Persist>(world.Ready(2)), SizeIs(1));
}

TEST(SessionConnectionTest, PodReplacedFencesTheOldOneAndItsRanks) {
  SessionWorld world;
  world.Train();
  const auto out = world.session.PodReplaced(world.now, 2, 1);
  EXPECT_THAT(Sent<wire::Fenced>(out), SizeIs(1));
  EXPECT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_THAT(Sent<wire::Fenced>(world.Connect(2, 0)), SizeIs(1));
  EXPECT_THAT(Sent<wire::Welcome>(world.Connect(2, 1)), SizeIs(1));
}

TEST(SessionConnectionTest, APodThatWasFencedBeforeTheSessionBeganStaysFenced) {
  SessionOptions options = SessionWorld::DefaultOptions();
  options.lowest_incarnations = {0, 2};
  SessionWorld world(options);
  EXPECT_THAT(Sent<wire::Welcome>(world.Connect(0, 0)), SizeIs(1));
  EXPECT_THAT(Sent<wire::Fenced>(world.Connect(1, 1)), SizeIs(1));
  EXPECT_THAT(Sent<wire::Welcome>(world.Connect(1, 2)), SizeIs(1));
  EXPECT_THAT(Sent<wire::Welcome>(world.Connect(2, 0)), SizeIs(1));
}

TEST(SessionConnectionTest, AProcessThatWasGivenUpMayNotJoinWithItsOldState) {
  SessionWorld world;
  world.Train();
  world.Disconnect(2);
  world.Pass(milliseconds(100));
  world.Persist();
  world.Connect(2);
  world.SayFrom(2, wire::ProcessStarted{2, 103});
  const auto out = world.SayFrom(2, wire::Ready{2, "127.0.0.1:1002", 1});
  EXPECT_THAT(Sent<wire::Fenced>(out), SizeIs(1));
  EXPECT_THAT(Of<Persist>(world.Pass(seconds(1))), IsEmpty());
}

TEST(SessionConnectionTest, AfterARestartOfRendezvousTheLiveProcessesKeepTheirState) {
  auto options = SessionWorld::DefaultOptions(3);
  options.first_generation = 5;
  SessionWorld world(options);
  for (int replica = 0; replica < 3; ++replica) world.Connect(replica);
  for (int rank = 0; rank < 3; ++rank) {
    world.Start(rank);
    world.Say(wire::Ready{rank, "e", rank == 1 ? 0u : 5u});
  }
  world.Persist();
  EXPECT_EQ(world.session.membership().generation, 6u);
  EXPECT_THAT(NewcomersOf(world.session.membership()), ElementsAre(1));
}

TEST(SessionConnectionTest, RefusesStrangers) {
  SessionWorld world;
  const wire::Hello good{.job = "job",
                         .token = "secret",
                         .replica = 1,
                         .incarnation = 0,
                         .processes = 1,
                         .pod = "",
                         .node = ""};
  std::vector<wire::Hello> bad(5, good);
  bad[0].token = "guess";
  bad[1].job = "other";
  bad[2].replica = 4;
  bad[3].replica = -1;
  bad[4].processes = 2;
  for (const wire::Hello& hello : bad) {
    const auto out = world.session.Connected(world.now, 99, hello);
    EXPECT_THAT(Sent<wire::Fenced>(out), SizeIs(1));
    EXPECT_THAT(Of<Close>(out), SizeIs(1));
  }
  EXPECT_THAT(Of<ReplicaConnected>(world.session.Connected(world.now, 99, good)), SizeIs(1));
}

TEST(SessionConnectionTest, NobodySpeaksForAnothersRankOrGivesOrders) {
  for (const wire::Message& message : std::vector<wire::Message>{
           wire::ProcessDied{.rank = 1}, wire::Ready{-1, "e"}, wire::Finished{7, 1, ""},
           wire::Stop{}, wire::Membership{.generation = 99, .members = {}}, wire::Hello{}}) {
    SessionWorld world;
    world.Train();
    const auto out = world.SayFrom(0, message);
    EXPECT_THAT(Sent<wire::Fenced>(out), SizeIs(1)) << wire::TypeName(message);
    EXPECT_THAT(Of<Persist>(out), IsEmpty());
    EXPECT_EQ(world.session.membership().generation, 1u);
  }
}

}  // namespace
}  // namespace everstep
