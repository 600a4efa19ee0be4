#include "operator/rendezvous/session.h"

#include "tests/unit/operator/rendezvous/session_fixture.h"

namespace everstep {
namespace {

using session::AskRecovery;
using session::Close;
using session::Formed;
using session::JobFailed;
using session::JobFinished;
using session::Persist;
using session::ReplicaLost;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(AssignLogicalRanksTest, EveryoneKeepsItsOwnAtFullStrength) {
  EXPECT_THAT(AssignLogicalRanks({0, 1, 2}, 3),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(AssignLogicalRanksTest, OrphansGoToTheLeastLoaded) {
  EXPECT_THAT(AssignLogicalRanks({0, 2, 3}, 4),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3)));
  EXPECT_THAT(AssignLogicalRanks({1, 4}, 6),
              ElementsAre(ElementsAre(0, 1, 3), ElementsAre(2, 4, 5)));
  EXPECT_THAT(AssignLogicalRanks({2}, 4), ElementsAre(ElementsAre(0, 1, 2, 3)));
}

// ---- Forming ----

TEST(SessionTest, FormsTheFirstGenerationWhenAllAreReady) {
  SessionWorld world;
  for (int replica = 0; replica < 4; ++replica) world.Connect(replica);
  for (int rank = 0; rank < 4; ++rank) world.Start(rank);
  for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(Of<Persist>(world.Ready(rank)), IsEmpty());

  const auto out = world.Ready(3);
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  const wire::Membership membership = Of<Persist>(out)[0].membership;
  EXPECT_EQ(membership.generation, 1u);
  EXPECT_FALSE(membership.planned);
  EXPECT_THAT(RanksOf(membership), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(NewcomersOf(membership), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(membership.members[2].endpoint, "127.0.0.1:1002");
}

TEST(SessionTest, NothingIsSentBeforeItIsPersisted) {
  SessionWorld world;
  for (int replica = 0; replica < 4; ++replica) world.Connect(replica);
  session::Outputs out;
  for (int rank = 0; rank < 4; ++rank) SessionWorld::Append(out, world.Ready(rank));
  EXPECT_THAT(Sent<wire::Membership>(out), IsEmpty());

  const auto after = world.Persist();
  EXPECT_THAT(Sent<wire::Membership>(after), SizeIs(4));
  EXPECT_THAT(Of<Formed>(after), SizeIs(1));
}

TEST(SessionTest, ContinuesTheGenerationsAndTheDurableStepOfStatus) {
  auto options = SessionWorld::DefaultOptions(1);
  options.first_generation = 41;
  options.durable_step = 500;
  SessionWorld world(options);
  world.Connect(0);
  const auto out = world.Ready(0);
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_EQ(Of<Persist>(out)[0].membership.generation, 42u);
  EXPECT_EQ(Of<Persist>(out)[0].membership.durable_step, 500);
}

TEST(SessionTest, WritesAgainWhatCouldNotBeWritten) {
  SessionWorld world(SessionWorld::DefaultOptions(1));
  world.Connect(0);
  world.Ready(0);
  world.session.PersistFailed(world.now, 1, "conflict");
  EXPECT_THAT(Of<Persist>(world.Pass(milliseconds(150))), IsEmpty());
  EXPECT_THAT(Of<Persist>(world.Pass(milliseconds(100))), SizeIs(1));
  EXPECT_THAT(Sent<wire::Membership>(world.Persist()), SizeIs(1));
}

TEST(SessionTest, StartsWithFewerWhenTheSlowLoopAllowsIt) {
  SessionWorld world;
  world.Connect(0);
  world.Connect(1);
  world.Ready(0);
  world.Ready(1);
  EXPECT_THAT(Of<Persist>(world.Pass(std::chrono::minutes(10))), IsEmpty());
  const auto out = world.session.AllowMembers(world.now, 2);
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_THAT(Of<Persist>(out)[0].membership.members[0].logical_ranks, ElementsAre(0, 2));
}

// ---- Deaths ----

TEST(SessionTest, TheSurvivorsOfADeathFormTheNextGenerationAtOnce) {
  SessionWorld world;
  world.Train(10);
  const auto out = world.Kill(2);
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  const wire::Membership membership = Of<Persist>(out)[0].membership;
  EXPECT_EQ(membership.generation, 2u);
  EXPECT_FALSE(membership.planned);
  EXPECT_THAT(RanksOf(membership), ElementsAre(0, 1, 3));
  EXPECT_THAT(NewcomersOf(membership), IsEmpty());
  EXPECT_THAT(membership.members[0].logical_ranks, ElementsAre(0, 2));

  // The persisting comes before the question what becomes of the dead rank.
  ASSERT_THAT(Of<AskRecovery>(out), SizeIs(1));
  EXPECT_TRUE(std::holds_alternative<Persist>(out[0].action));
  const AskRecovery ask = Of<AskRecovery>(out)[0];
  EXPECT_EQ(ask.rank, 2);
  EXPECT_FALSE(ask.victim);
  EXPECT_EQ(ask.incident.cause, IncidentCause::kSignaled);
  EXPECT_EQ(ask.incident.signal, 9);
  EXPECT_EQ(ask.incident.pod, "job-2-0");
  EXPECT_EQ(ask.incident.interrupted_step, 10);
}

TEST(SessionTest, MoreDeathsSupersedeAGenerationThatIsBeingWritten) {
  SessionWorld world;
  world.Train();
  world.Kill(2);
  world.Kill(0);  // generation 2 is not persisted yet
  EXPECT_THAT(world.session.Persisted(world.now, 2), IsEmpty());
  const auto out = world.Persist();
  ASSERT_THAT(Sent<wire::Membership>(out), SizeIs(4));
  EXPECT_EQ(Sent<wire::Membership>(out)[0].generation, 3u);
  EXPECT_THAT(RanksOf(Sent<wire::Membership>(out)[0]), ElementsAre(1, 3));
}

TEST(SessionTest, ADeathDuringARegroupSupersedesIt) {
  SessionWorld world;
  world.Train();
  world.Kill(2);
  world.Persist();
  world.Say(wire::Regrouped{0, 2, 5});
  world.Kill(3);
  world.Persist();
  EXPECT_THAT(RanksOf(world.session.membership()), ElementsAre(0, 1));
  EXPECT_EQ(world.session.generation(), 3u);
}

TEST(SessionTest, TheDeathOfALoadingProcessMakesNoGeneration) {
  SessionWorld world;
  world.Train();
  world.Kill(2);
  world.Persist();
  world.RegroupAll();
  world.Restart(2);
  const auto out = world.Exit(2, 1);
  EXPECT_THAT(Of<Persist>(out), IsEmpty());
  ASSERT_THAT(Of<AskRecovery>(out), SizeIs(1));
  EXPECT_FALSE(Of<AskRecovery>(out)[0].incident.was_member);
}

TEST(SessionTest, PlainExitsRightAfterADeathAreItsVictims) {
  SessionWorld world;
  world.Train();
  world.Kill(2);
  world.now += milliseconds(100);
  const auto out = world.Exit(3, 1);
  ASSERT_THAT(Of<AskRecovery>(out), SizeIs(1));
  EXPECT_TRUE(Of<AskRecovery>(out)[0].victim);
  EXPECT_EQ(Of<AskRecovery>(out)[0].rank, 3);
  EXPECT_EQ(Of<AskRecovery>(out)[0].incident.id, 1u);
  EXPECT_THAT(Of<AskRecovery>(out)[0].incident.further_ranks, ElementsAre(3));
}

TEST(SessionTest, ASignalOrAFatalExitOrALaterExitIsACauseOfItsOwn) {
  for (int variant = 0; variant < 3; ++variant) {
    SessionWorld world;
    world.Train();
    world.Kill(2);
    session::Outputs out;
    if (variant == 0) out = world.Kill(3);
    if (variant == 1) out = world.Exit(3, 2);
    if (variant == 2) {
      world.Persist();
      world.Pass(seconds(3));
      out = world.Exit(3, 1);
    }
    ASSERT_THAT(Of<AskRecovery>(out), SizeIs(1)) << variant;
    EXPECT_FALSE(Of<AskRecovery>(out)[0].victim) << variant;
    EXPECT_EQ(Of<AskRecovery>(out)[0].incident.id, 2u) << variant;
  }
}

TEST(SessionTest, AProcessThatWasReplacedUnseenIsDeadFirst) {
  SessionWorld world;
  world.Train();
  const auto out = world.Start(1);  // another pid; its death was never reported
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_THAT(RanksOf(Of<Persist>(out)[0].membership), ElementsAre(0, 2, 3));
}

TEST(SessionTest, WithNobodyLeftItWaitsForAllAndStartsFromTheCheckpoint) {
  SessionWorld world;
  world.Train(10);
  world.Say(wire::CheckpointSaved{
      .rank = 0, .generation = 1, .step = 8, .path = "checkpoint-8", .warning = ""});
  for (int rank = 0; rank < 4; ++rank) world.Kill(rank);
  EXPECT_EQ(world.session.phase(), SessionPhase::kForming);
  world.to_persist.reset();
  for (int rank = 0; rank < 4; ++rank) world.Restart(rank);
  for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(Of<Persist>(world.Ready(rank)), IsEmpty());
  ASSERT_THAT(Of<Persist>(world.Ready(3)), SizeIs(1));
  world.Persist();
  EXPECT_FALSE(world.session.membership().planned);
  EXPECT_EQ(world.session.membership().durable_step, 8);
  EXPECT_THAT(NewcomersOf(world.session.membership()), SizeIs(4));

  world.RegroupAll(8);
  EXPECT_EQ(world.incidents.back().lost_steps, 2);
  EXPECT_EQ(world.incidents.back().resumed_step, 8);
}

TEST(SessionTest, WithNobodyLeftEnoughRanksMayStartAfterAWhile) {
  SessionWorld world;
  world.Train();
  for (int rank = 0; rank < 4; ++rank) world.Kill(rank);
  world.to_persist.reset();
  world.Restart(1);
  world.Ready(1);
  EXPECT_THAT(Of<Persist>(world.Pass(seconds(100))), IsEmpty());
  const auto out = world.Pass(seconds(30));
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_THAT(RanksOf(Of<Persist>(out)[0].membership), ElementsAre(1));
}

TEST(SessionTest, BelowTheMinimumTheSurvivorsKeepTheirStateAndWait) {
  auto options = SessionWorld::DefaultOptions(2);
  options.min_members = 2;
  SessionWorld world(options);
  world.Train(5);
  EXPECT_THAT(Of<Persist>(world.Kill(1)), IsEmpty());
  EXPECT_EQ(world.session.phase(), SessionPhase::kShort);
  world.Restart(1);
  const auto out = world.Ready(1);
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_FALSE(Of<Persist>(out)[0].membership.planned);
  EXPECT_THAT(NewcomersOf(Of<Persist>(out)[0].membership), ElementsAre(1));
}

// ---- Newcomers ----

TEST(SessionTest, ANewcomerJoinsByAPlannedGeneration) {
  SessionWorld world;
  world.Train();
  world.Kill(2);
  world.Persist();
  world.RegroupAll(5);
  const auto decided = world.session.Decided(
      world.now, 2, {RecoveryDecision::Kind::kRestartInPlace, milliseconds(500), "in place"});
  EXPECT_THAT(Sent<wire::StartProcess>(decided), IsEmpty());
  EXPECT_THAT(Sent<wire::StartProcess>(world.Pass(milliseconds(450))), IsEmpty());
  EXPECT_THAT(Sent<wire::StartProcess>(world.Pass(milliseconds(50))), SizeIs(1));
  world.Start(2);

  const auto out = world.Ready(2);
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  const wire::Membership membership = Of<Persist>(out)[0].membership;
  EXPECT_TRUE(membership.planned);
  EXPECT_THAT(RanksOf(membership), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(NewcomersOf(membership), ElementsAre(2));
  EXPECT_THAT(membership.members[0].logical_ranks, ElementsAre(0));
}

TEST(SessionTest, ANewcomerWaitsWhileAChangeIsUnderWay) {
  SessionWorld world;
  world.Train();
  world.Kill(1);
  world.Kill(2);
  world.Persist();
  world.Restart(1);
  world.Restart(2);
  EXPECT_THAT(Of<Persist>(world.Ready(1)), IsEmpty());  // not regrouped yet
  EXPECT_THAT(Of<Persist>(world.Ready(2)), IsEmpty());
  const auto out = world.RegroupAll(5);
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));  // both join together
  EXPECT_THAT(NewcomersOf(Of<Persist>(out)[0].membership), ElementsAre(1, 2));
}

TEST(SessionTest, ANewcomerWaitsALittleForOthersThatAreStarting) {
  SessionWorld world;
  world.Train();
  world.Kill(1);
  world.Kill(2);
  world.Persist();
  world.RegroupAll(5);
  world.Restart(1);
  world.Restart(2);
  EXPECT_THAT(Of<Persist>(world.Ready(1)), IsEmpty());
  EXPECT_THAT(Of<Persist>(world.Pass(milliseconds(150))), IsEmpty());
  const auto out = world.Pass(milliseconds(100));
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_THAT(NewcomersOf(Of<Persist>(out)[0].membership), ElementsAre(1));
}

TEST(SessionTest, ADeathSupersedesAPlannedChange) {
  SessionWorld world;
  world.Train();
  world.Kill(2);
  world.Persist();
  world.RegroupAll(5);
  world.Restart(2);
  world.Ready(2);
  world.Persist();  // planned, the members have not switched
  world.Kill(3);
  world.Persist();
  const wire::Membership& membership = world.session.membership();
  EXPECT_FALSE(membership.planned);
  EXPECT_THAT(RanksOf(membership), ElementsAre(0, 1, 2));
  EXPECT_THAT(NewcomersOf(membership), ElementsAre(2));  // it was never fed
}

TEST(SessionTest, ANewcomerThatDiesLeavesTheOthersToGoOn) {
  SessionWorld world;
  world.Train();
  world.Kill(2);
  world.Persist();
  world.RegroupAll(5);
  world.Restart(2);
  world.Ready(2);
  world.Persist();
  world.Kill(2);
  world.Persist();
  EXPECT_FALSE(world.session.membership().planned);
  EXPECT_THAT(RanksOf(world.session.membership()), ElementsAre(0, 1, 3));
}

// ---- Broken exchanges ----

TEST(SessionTest, AnExchangeThatBrokeWithoutADeathIsTriedAgain) {
  SessionWorld world;
  world.Train();
  world.Say(wire::PeerLost{1, 1, 2});
  EXPECT_THAT(Of<Persist>(world.Pass(milliseconds(1900))), IsEmpty());
  const auto out = world.Pass(milliseconds(200));
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_THAT(RanksOf(Of<Persist>(out)[0].membership), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(world.incidents, IsEmpty());
}

TEST(SessionTest, AnExchangeThatBrokeWhileAPlannedChangeWaitsIsTriedAgainToo) {
  SessionWorld world;
  world.Train();
  world.Kill(2);
  world.Persist();
  world.RegroupAll(5);
  world.Restart(2);
  world.Ready(2);
  world.Persist();  // generation 3, planned
  world.Say(wire::PeerLost{1, 2, 3});
  const auto out = world.Pass(seconds(3));
  ASSERT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_FALSE(Of<Persist>(out)[0].membership.planned);
}

TEST(SessionTest, PeerLostOfAGenerationThatIsOverIsAnEcho) {
  SessionWorld world;
  world.Train();
  world.Kill(2);
  world.Persist();
  world.Say(wire::PeerLost{1, 1, 2});
  world.RegroupAll(5);
  EXPECT_THAT(Of<Persist>(world.Pass(seconds(5))), IsEmpty());
}

// ---- The end ----

TEST(SessionTest, AMembersFinishedEndsTheJobAndDeathsAreNoIncidentsAnyMore) {
  SessionWorld world;
  world.Train(10);
  const auto out = world.Say(wire::Finished{0, 10, "out"});
  ASSERT_THAT(Of<JobFinished>(out), SizeIs(1));
  EXPECT_EQ(Of<JobFinished>(out)[0].finished.output_dir, "out");
  EXPECT_THAT(world.Exit(1, 1), IsEmpty());
  EXPECT_THAT(Of<JobFinished>(world.Say(wire::Finished{2, 10, "out"})), IsEmpty());
  EXPECT_THAT(Of<ReplicaLost>(world.Disconnect(1)), SizeIs(1));
  EXPECT_THAT(world.incidents, IsEmpty());
}

std::vector<ConnectionId> ToldToStop(const session::Outputs& outputs) {
  std::vector<ConnectionId> told;
  for (const session::Send& send : Of<session::Send>(outputs)) {
    if (std::holds_alternative<wire::Stop>(send.message)) told.push_back(send.connection);
  }
  return told;
}

TEST(SessionTest, WhoIsStillOnItsWayWhenTheJobIsDoneIsStopped) {
  SessionWorld world;
  world.Train(10);
  world.Kill(1);
  world.Kill(2);
  world.Persist();
  world.RegroupAll(10);
  world.Restart(2);  // rank 1 is not even ordered yet
  const auto out = world.Say(wire::Finished{0, 10, "out"});
  EXPECT_THAT(ToldToStop(out), ElementsAre(world.connection_of[1], world.connection_of[2]));
  EXPECT_THAT(Sent<wire::Stop>(world.Connect(2, 1)), SizeIs(1)) << "also one that comes later";
  EXPECT_THAT(world.Ready(2), IsEmpty());
}

TEST(SessionTest, AMemberOfAPlannedGenerationThatNobodyCameToIsStoppedToo) {
  SessionWorld world;
  world.Train(10);
  world.Kill(2);
  world.Persist();
  world.RegroupAll(10);
  world.Restart(2);
  world.Ready(2);
  world.Pass(seconds(5));
  world.Persist();
  ASSERT_THAT(NewcomersOf(world.session.membership()), ElementsAre(2));
  const auto out = world.Say(wire::Finished{0, 10, "out"});
  EXPECT_THAT(ToldToStop(out), ElementsAre(world.connection_of[2]));
}

TEST(SessionTest, AMemberThatExitsWithZeroGetsTimeForTheFinishedOfAnother) {
  SessionWorld world;
  world.Train(10);
  EXPECT_THAT(Of<Persist>(world.Exit(3, 0)), IsEmpty());
  world.Pass(milliseconds(500));
  EXPECT_THAT(Of<JobFinished>(world.Say(wire::Finished{0, 10, "out"})), SizeIs(1));
  EXPECT_THAT(world.incidents, IsEmpty());
}

TEST(SessionTest, AMemberThatExitsWithZeroForNoReasonIsLost) {
  SessionWorld world;
  world.Train(10);
  world.Exit(3, 0);
  const auto out = world.Pass(seconds(3));
  EXPECT_THAT(Of<Persist>(out), SizeIs(1));
  EXPECT_THAT(Of<AskRecovery>(out), SizeIs(1));
  world.Persist();
  EXPECT_THAT(RanksOf(world.session.membership()), ElementsAre(0, 1, 2));
}

TEST(SessionTest, ProgramsThatNeverJoinFinishOneByOne) {
  SessionWorld world(SessionWorld::DefaultOptions(2));
  world.Connect(0);
  world.Connect(1);
  world.Start(0);
  world.Start(1);
  EXPECT_THAT(Of<JobFinished>(world.Say(wire::Finished{0, 0, ""})), IsEmpty());
  EXPECT_THAT(Of<JobFinished>(world.Say(wire::Finished{1, 0, ""})), SizeIs(1));
}

TEST(SessionTest, FatalFailsTheJobWithItsReason) {
  SessionWorld world;
  world.Train();
  const auto out = world.Say(wire::Fatal{1, "loss is NaN at step 7"});
  ASSERT_THAT(Of<JobFailed>(out), SizeIs(1));
  EXPECT_EQ(out[0].reason, "loss is NaN at step 7");
  EXPECT_THAT(world.Exit(1, 3), IsEmpty());
  EXPECT_THAT(Of<JobFailed>(world.Say(wire::Fatal{2, "loss is NaN at step 7"})), IsEmpty());
}

TEST(SessionTest, TheSlowLoopMayFailTheJob) {
  SessionWorld world;
  world.Train();
  world.Kill(2);
  const auto out = world.session.Decided(world.now, 2,
                                         {RecoveryDecision::Kind::kFail, {}, "5 restarts in 60 s"});
  ASSERT_THAT(Of<JobFailed>(out), SizeIs(1));
  EXPECT_EQ(Of<JobFailed>(out)[0].rank, -1);
}

TEST(SessionTest, StopReachesEverybodyLateComersToo) {
  SessionWorld world;
  world.Train();
  world.Disconnect(3);
  const auto out = world.session.Stop(world.now, seconds(7), "suspended");
  ASSERT_THAT(Sent<wire::Stop>(out), SizeIs(3));
  EXPECT_EQ(Sent<wire::Stop>(out)[0].grace_seconds, 7);
  EXPECT_THAT(Sent<wire::Stop>(world.Connect(3)), SizeIs(1));
  EXPECT_THAT(Of<Persist>(world.Exit(1, 130)), IsEmpty());
  EXPECT_THAT(world.incidents, IsEmpty());
}

}  // namespace
}  // namespace everstep
