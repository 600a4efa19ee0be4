// What each event of the fast loop writes to status. No thread runs and time stands still.
#include <gmock/gmock.h>

#include "tests/unit/operator/shell/controller_fixture.h"

namespace everstep {
namespace {

// Made before the fixture that borrows it.
struct ManualTime {
  ManualClock manual_clock_;
};

class EventsTest : protected ManualTime, public ControllerFixture {
 protected:
  EventsTest() : ControllerFixture(manual_clock_, /*status_threads=*/0) {
    CreateJob({{"replicas", 2}});
  }

  Status Persist(uint64_t generation, int members = 2) {
    wire::Membership membership{.generation = generation, .members = {}};
    for (int rank = 0; rank < members; ++rank) {
      membership.members.push_back({.rank = rank, .endpoint = "e", .logical_ranks = {rank}});
    }
    Status result = Unavailable("not called");
    int calls = 0;
    controller_->PersistMembership("job", membership, [&](const Status& status) {
      result = status;
      ++calls;
    });
    EXPECT_EQ(calls, 1);
    return result;
  }
  Incident MakeIncident(uint64_t id) {
    Incident incident;
    incident.id = id;
    incident.rank = 1;
    incident.replica = 1;
    incident.pod = "job-1-0";
    incident.generation_before = id;
    return incident;
  }
  void Progress(int64_t step, int64_t total = 100) {
    controller_->OnProgress("job", {.rank = 0,
                                    .generation = 1,
                                    .step = step,
                                    .total_steps = total,
                                    .loss = 1.5,
                                    .tokens_per_second = 99.6,
                                    .step_seconds = 0.5});
  }
  std::vector<int> IncidentIds() {
    const OrderedJson status = StatusOf();
    std::vector<int> ids;
    for (const OrderedJson& incident : status["incidents"]) ids.push_back(incident["id"]);
    return ids;
  }
  RecoveryDecision Died(const Incident& incident, bool victim = false) {
    RecoveryDecision decision;
    int calls = 0;
    controller_->OnProcessDied("job", incident, incident.rank, victim,
                               [&](const RecoveryDecision& answer) {
                                 decision = answer;
                                 ++calls;
                               });
    EXPECT_EQ(calls, 1);
    return decision;
  }
  ManualClock& time() { return manual_clock_; }
};

TEST_F(EventsTest, AGenerationIsWrittenWithItsMembers) {
  ASSERT_TRUE(Persist(3).has_value());
  EXPECT_EQ(DumpJson(StatusOf()["attempt"]), R"({"generation":3,"worldSize":2,"members":[0,1]})");
}

TEST_F(EventsTest, AnOlderOrEqualGenerationIsRefused) {
  ASSERT_TRUE(Persist(3).has_value());
  for (const uint64_t generation : {uint64_t{3}, uint64_t{2}, uint64_t{0}}) {
    const Status again = Persist(generation, 1);
    ASSERT_FALSE(again.has_value());
    EXPECT_EQ(again.error().code, ErrorCode::kConflict);
  }
  EXPECT_EQ(StatusOf()["attempt"]["worldSize"], 2);
  EXPECT_TRUE(Persist(4).has_value());
}

TEST_F(EventsTest, AJobThatIsGoneIsAnError) {
  ASSERT_TRUE(store_->Delete(names::kKind, "job").has_value());
  EXPECT_EQ(Persist(1).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Died(MakeIncident(1)).kind, RecoveryDecision::Kind::kWait);
  Progress(1);
  controller_->OnIncidentUpdated("job", MakeIncident(1));
  EXPECT_FALSE(Has(names::kKind, "job"));
}

TEST_F(EventsTest, IncidentsAreUpdatedInTheirPlace) {
  controller_->OnIncidentUpdated("job", MakeIncident(1));
  const std::string at = StatusOf()["incidents"][0]["at"];
  time().Advance(std::chrono::minutes(1));
  controller_->OnIncidentUpdated("job", MakeIncident(2));
  Incident more = MakeIncident(1);
  more.action = "restarted in place";
  more.closed = true;
  controller_->OnIncidentUpdated("job", more);

  EXPECT_THAT(IncidentIds(), testing::ElementsAre(2, 1));
  const OrderedJson incident = StatusOf()["incidents"][1];
  EXPECT_EQ(incident["action"], "restarted in place");
  EXPECT_EQ(incident["closed"], true);
  EXPECT_EQ(incident["at"], at);
}

TEST_F(EventsTest, TheNewestTenIncidentsAreKept) {
  for (uint64_t id = 1; id <= 13; ++id) {
    controller_->OnIncidentUpdated("job", MakeIncident(id));
  }
  EXPECT_THAT(IncidentIds(), testing::ElementsAre(13, 12, 11, 10, 9, 8, 7, 6, 5, 4));
  EXPECT_EQ(observer_.Count("incident 1"), 13);
}

TEST_F(EventsTest, IncidentsOfAnEarlierOperatorAreOthers) {
  Incident incident = MakeIncident(1);
  controller_->OnIncidentUpdated("job", incident);
  incident.generation_before = 7;  // its count starts at 1 again
  controller_->OnIncidentUpdated("job", incident);
  EXPECT_EQ(IncidentIds().size(), 2u);
}

TEST_F(EventsTest, ProgressIsWrittenOnceASecondAndShownAlways) {
  Progress(1);
  EXPECT_EQ(DumpJson(StatusOf()["progress"]),
            R"({"step":1,"totalSteps":100,"loss":1.5,"epoch":0.0,"tokensPerSecond":100.0,)"
            R"("etaSeconds":50.0,"eta":"0:00:49"})");
  time().Advance(std::chrono::milliseconds(999));
  Progress(2);
  EXPECT_EQ(StatusOf()["progress"]["step"], 1);
  EXPECT_EQ(observer_.Count("progress 2"), 1);
  time().Advance(std::chrono::milliseconds(1));
  Progress(3);
  EXPECT_EQ(StatusOf()["progress"]["step"], 3);
}

TEST_F(EventsTest, TheLastStepIsWrittenAtOnce) {
  Progress(1, 2);
  Progress(2, 2);
  EXPECT_EQ(StatusOf()["progress"]["step"], 2);
}

TEST_F(EventsTest, PhasesFollowTheMembers) {
  ChangeStatus(names::kKind, "job", [](OrderedJson& status) {
    status["phase"] = "Pending";
    status["logicalWorld"] = 2;
  });
  ASSERT_TRUE(Persist(1).has_value());
  controller_->OnRegrouped("job", 1, 0);
  EXPECT_EQ(StatusOf()["phase"], "Running");
  ASSERT_TRUE(Persist(2, 1).has_value());
  controller_->OnRegrouped("job", 2, 0);
  EXPECT_EQ(StatusOf()["phase"], "Recovering");
  for (const char* phase : {"Suspended", "Failed", "Succeeded"}) {
    ChangeStatus(names::kKind, "job", [&](OrderedJson& status) { status["phase"] = phase; });
    controller_->OnRegrouped("job", 2, 0);
    EXPECT_EQ(StatusOf()["phase"], phase);
  }
}

TEST_F(EventsTest, ACheckpointThatFailedIsAWarningUntilOneSucceeds) {
  controller_->OnCheckpoint("job",
                            {.rank = 0, .generation = 4, .step = 5, .path = "a", .warning = ""});
  controller_->OnCheckpoint(
      "job", {.rank = 0, .generation = 4, .step = 6, .path = "", .warning = "the disk is full"});
  EXPECT_EQ(StatusOf()["checkpoint"]["step"], 5);
  EXPECT_EQ(StatusOf()["checkpointWarning"], "the disk is full");
  controller_->OnCheckpoint("job",
                            {.rank = 0, .generation = 4, .step = 7, .path = "b", .warning = ""});
  EXPECT_EQ(StatusOf()["checkpoint"]["step"], 7);
  EXPECT_FALSE(StatusOf().contains("checkpointWarning"));
}

TEST_F(EventsTest, TheFirstFatalReasonStays) {
  controller_->OnFatal("job", 1, "loss is NaN");
  controller_->OnFatal("job", 0, "a consequence");
  EXPECT_EQ(StatusOf()["failure"], "loss is NaN");
}

TEST_F(EventsTest, ReplacingAPodDeletesItAndSaysWhenTheNextMayCome) {
  ASSERT_TRUE(store_->Create({{"kind", "Pod"}, {"metadata", {{"name", "job-1-0"}}}}).has_value());
  ChangeStatus(names::kKind, "job", [](OrderedJson& status) {
    status["restarts"] = {{"chargedAt", {std::time(nullptr)}},
                          {"noProgress", 2},
                          {"inPlaceInARow", {{"1", 3}}},
                          {"lastStep", 5}};
  });
  Incident incident = MakeIncident(1);
  incident.cause = IncidentCause::kSignaled;
  incident.was_member = true;
  incident.interrupted_step = 5;
  const RecoveryDecision decision = Died(incident);
  EXPECT_EQ(decision.kind, RecoveryDecision::Kind::kReplacePod);
  EXPECT_FALSE(Has("Pod", "job-1-0"));
  const OrderedJson status = StatusOf();
  EXPECT_EQ(status["chargedPods"]["1"], "job-1-0");
  EXPECT_EQ(status["notBefore"]["1"], std::chrono::system_clock::to_time_t(time().WallNow()) + 4);
}

TEST_F(EventsTest, AVictimIsRestartedInItsOwnPodWhateverBecameOfTheOthers) {
  CreatePod(0, 0);
  CreatePod(1, 0);
  SetPodPhase("job-1-0", "Running");
  ChangeStatus(names::kKind, "job", [](OrderedJson& status) {
    status["incarnations"] = OrderedJson::array({0, 0});
  });
  Incident incident = MakeIncident(1);  // rank 1's
  const auto decision_for = [&](int rank) {
    RecoveryDecision decision;
    controller_->OnProcessDied("job", incident, rank, /*victim=*/true,
                               [&](const RecoveryDecision& answer) { decision = answer; });
    return decision.kind;
  };
  ASSERT_TRUE(store_->Delete("Pod", "job-1-0").has_value());  // marked: it runs
  EXPECT_EQ(decision_for(0), RecoveryDecision::Kind::kRestartInPlace);
  EXPECT_EQ(decision_for(1), RecoveryDecision::Kind::kReplacePod);
  for (const IncidentCause cause : {IncidentCause::kVanished, IncidentCause::kReplaced}) {
    incident.cause = cause;
    EXPECT_EQ(decision_for(0), RecoveryDecision::Kind::kRestartInPlace);
  }
}

TEST_F(EventsTest, WhoStopsWithAPodThatIsTakenAwayIsNotCharged) {
  CreatePod(0, 0);
  CreatePod(1, 0);
  SetPodPhase("job-0-0", "Running");
  SetPodPhase("job-1-0", "Running");
  Incident incident = MakeIncident(1);
  incident.exit_code = 143;
  incident.was_member = true;
  const auto total = [&] { return StatusOf()["restarts"].value("total", 0); };
  // Nobody is taken away: then it is its own end.
  EXPECT_EQ(Died(incident).kind, RecoveryDecision::Kind::kRestartInPlace);
  EXPECT_EQ(total(), 1);
  ASSERT_TRUE(store_->Delete("Pod", "job-0-0").has_value());  // marked: it runs
  EXPECT_EQ(Died(incident).kind, RecoveryDecision::Kind::kRestartInPlace);
  EXPECT_EQ(total(), 1);
  incident.exit_code = 1;
  Died(incident);
  EXPECT_EQ(total(), 2);
}

TEST_F(EventsTest, NothingIsRestartedOrChargedOnceTheJobEnds) {
  ASSERT_TRUE(store_->Create({{"kind", "Pod"}, {"metadata", {{"name", "job-1-0"}}}}).has_value());
  Incident incident = MakeIncident(1);
  const auto expect_wait = [&] {
    EXPECT_EQ(Died(incident).kind, RecoveryDecision::Kind::kWait);
    EXPECT_FALSE(StatusOf().contains("restarts"));
  };
  for (const char* phase : {"Failed", "Succeeded"}) {
    ChangeStatus(names::kKind, "job", [&](OrderedJson& status) { status["phase"] = phase; });
    expect_wait();
  }
  ChangeStatus(names::kKind, "job", [](OrderedJson& status) {
    status = {{"phase", "Running"}, {"finished", {{"step", 3}}}};
  });
  expect_wait();
  ChangeStatus(names::kKind, "job", [](OrderedJson& status) { status = {{"phase", "Running"}}; });
  ChangeSpec([](OrderedJson& spec) { spec["suspend"] = true; });
  expect_wait();
  ChangeSpec([](OrderedJson& spec) { spec["suspend"] = false; });
  EXPECT_EQ(Died(incident).kind, RecoveryDecision::Kind::kRestartInPlace);
}

TEST_F(EventsTest, AVanishedPodIsLostOnlyWhenItIsTheNewest) {
  ChangeStatus(names::kKind, "job", [](OrderedJson& status) { status["incarnations"] = {0, 1}; });
  Incident incident = MakeIncident(1);
  incident.cause = IncidentCause::kVanished;
  incident.incarnation = 0;
  EXPECT_EQ(Died(incident).kind, RecoveryDecision::Kind::kReplacePod);
  EXPECT_FALSE(StatusOf().contains("lostPods"));
  incident.incarnation = 1;
  incident.pod = "job-1-1";
  Died(incident);
  Died(incident);
  EXPECT_EQ(DumpJson(StatusOf()["lostPods"]), R"(["job-1-1"])");
}

}  // namespace
}  // namespace everstep
