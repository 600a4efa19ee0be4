// The record of a failure, stage by stage.
#include "tests/unit/operator/rendezvous/session_fixture.h"

namespace everstep {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

TEST(IncidentTest, FillsItsStagesAsTheMessagesArrive) {
  SessionWorld world;
  world.Train(10);

  world.Kill(2);
  EXPECT_DOUBLE_EQ(*world.incidents.back().stages.detect_seconds, 0.025);
  world.Persist();
  EXPECT_EQ(world.incidents.back().generation_before, 1u);
  EXPECT_EQ(world.incidents.back().generation_after, 2u);

  world.now += milliseconds(40);
  world.RegroupAll(10);
  EXPECT_DOUBLE_EQ(*world.incidents.back().stages.regroup_seconds, 0.040);
  EXPECT_EQ(world.incidents.back().lost_steps, 0);

  world.now += milliseconds(300);
  world.Progress(11);
  EXPECT_DOUBLE_EQ(*world.incidents.back().stages.redo_seconds, 0.300);

  world.Say(wire::LastWords{.rank = 2, .text = "out of memory", .exit_code = 0, .signal = 9});
  EXPECT_EQ(world.incidents.back().last_words, "out of memory");

  world.Restart(2);
  world.now += milliseconds(700);
  world.Ready(2);
  EXPECT_DOUBLE_EQ(*world.incidents.back().stages.restart_seconds, 0.700);
  EXPECT_FALSE(world.incidents.back().closed);

  world.Persist();
  world.now += milliseconds(200);
  world.RegroupAll(12);
  EXPECT_DOUBLE_EQ(*world.incidents.back().stages.rejoin_seconds, 0.200);
  EXPECT_EQ(world.incidents.back().generation_rejoined, 3u);
  EXPECT_TRUE(world.incidents.back().closed);
  EXPECT_EQ(world.incidents.back().action, "again");
  for (const Incident& incident : world.incidents) EXPECT_EQ(incident.id, 1u);
}

TEST(IncidentTest, ItsCauseIsCompletedByTheLastWords) {
  SessionWorld world;
  world.Train();
  world.Exit(2, 0);  // left without a word; then it turns out how
  world.Say(wire::PeerLost{0, 1, 2});
  world.Say(wire::LastWords{.rank = 2, .text = "bad", .exit_code = 1, .signal = 0});
  EXPECT_EQ(world.incidents.back().cause, IncidentCause::kExited);
  EXPECT_EQ(world.incidents.back().exit_code, 1);
}

TEST(IncidentTest, ADeathOfTheReplacementReopensTheWait) {
  SessionWorld world;
  world.Train(10);
  world.Kill(2);
  world.Persist();
  world.RegroupAll(10);
  world.Restart(2);
  world.Ready(2);
  world.Persist();
  world.Kill(2);  // before it was fed
  world.Persist();
  world.RegroupAll(10);
  for (const Incident& incident : world.incidents) EXPECT_FALSE(incident.closed);
  world.Restart(2);
  world.Ready(2);
  world.Persist();
  world.RegroupAll(10);
  world.Progress(11);
  std::vector<uint64_t> closed;
  for (const Incident& incident : world.incidents) {
    if (incident.closed) closed.push_back(incident.id);
  }
  EXPECT_THAT(closed, ElementsAre(1, 2));
}

TEST(IncidentTest, TheEndOfTheJobClosesWhatIsOpen) {
  SessionWorld world;
  world.Train(10);
  world.Kill(2);
  world.Persist();
  world.RegroupAll(10);
  world.Say(wire::Finished{0, 10, "out"});
  EXPECT_TRUE(world.incidents.back().closed);
  EXPECT_FALSE(world.incidents.back().stages.rejoin_seconds.has_value());
}

TEST(IncidentTest, IsDescribedInOneLine) {
  Incident incident;
  incident.rank = 2;
  incident.pod = "qwen-2-0";
  incident.cause = IncidentCause::kSignaled;
  incident.signal = 9;
  EXPECT_EQ(DescribeIncident(incident), "rank 2 (pod qwen-2-0) was killed by SIGKILL");
  incident.cause = IncidentCause::kExited;
  incident.exit_code = 1;
  incident.further_ranks = {3};
  EXPECT_EQ(DescribeIncident(incident), "rank 2 (pod qwen-2-0) exited with code 1, 1 more with it");
}

}  // namespace
}  // namespace everstep
