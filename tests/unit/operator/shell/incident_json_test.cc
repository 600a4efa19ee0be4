#include "operator/shell/incident_json.h"

#include <gtest/gtest.h>

namespace everstep {
namespace {

TEST(IncidentJsonTest, SaysEverythingThatIsKnown) {
  Incident incident;
  incident.id = 3;
  incident.cause = IncidentCause::kSignaled;
  incident.rank = 2;
  incident.further_ranks = {3};
  incident.pod = "job-1-0";
  incident.node = "n1";
  incident.signal = 9;
  incident.last_words = "out of memory";
  incident.generation_before = 4;
  incident.generation_after = 5;
  incident.interrupted_step = 10;
  incident.lost_steps = 1;
  incident.stages.detect_seconds = 0.012345;
  incident.stages.regroup_seconds = 0.04;
  incident.action = "restarted in place";
  incident.closed = true;
  EXPECT_EQ(DumpJson(IncidentToJson(incident)),
            R"({"id":3,"cause":"signaled","rank":2,"furtherRanks":[3],"pod":"job-1-0",)"
            R"("node":"n1","signal":9,"generation":4,"generationAfter":5,"interruptedStep":10,)"
            R"("lostSteps":1,"action":"restarted in place",)"
            R"("seconds":{"detect":0.0123,"regroup":0.04},"lastWords":"out of memory",)"
            R"("closed":true})");
}

TEST(IncidentJsonTest, OnlyAnExitHasACode) {
  Incident incident;
  incident.cause = IncidentCause::kExited;
  incident.exit_code = 7;
  EXPECT_EQ(IncidentToJson(incident)["exitCode"], 7);
  incident.cause = IncidentCause::kVanished;
  const OrderedJson vanished = IncidentToJson(incident);
  EXPECT_FALSE(vanished.contains("exitCode"));
  EXPECT_FALSE(vanished.contains("signal"));
  EXPECT_FALSE(vanished.contains("lastWords"));
  EXPECT_TRUE(vanished["seconds"].empty());
}

}  // namespace
}  // namespace everstep
