// The operator from manifest to end, with the real store and real sockets.
#include "operator/shell/controller.h"

#include <gmock/gmock.h>

#include <atomic>
#include <csignal>

#include "tests/unit/operator/shell/controller_fixture.h"

namespace everstep {
namespace {

using testing::HasSubstr;

const SystemClock kSystemClock;

class ControllerTest : public ControllerFixture {
 protected:
  ControllerTest() : ControllerFixture(kSystemClock) {}
};

TEST_F(ControllerTest, MakesTheObjectsOfAJob) {
  Start();
  CreateJob({{"replicas", 2}});
  EXPECT_TRUE(AwaitPod("job-0-0"));
  EXPECT_TRUE(AwaitPod("job-1-0"));
  EXPECT_TRUE(Has("Service", "job"));
  EXPECT_TRUE(Has("ConfigMap", "job-train"));
  const OrderedJson status = StatusOf();
  EXPECT_EQ(status["phase"], "Pending");
  EXPECT_EQ(status["logicalWorld"], 2);
  EXPECT_EQ(status["threadsPerProcess"], 2);
  EXPECT_EQ(status["incarnations"], OrderedJson({0, 0}));
}

TEST_F(ControllerTest, AJobThatWasThereBeforeIsTakenUp) {
  CreateJob();
  Start();
  EXPECT_TRUE(AwaitPod("job-0-0"));
}

TEST_F(ControllerTest, LeadsAJobToItsEnd) {
  Start();
  CreateJob({{"replicas", 2}});
  auto [first, second] = TrainingPair();
  OrderedJson status = StatusOf();
  EXPECT_EQ(DumpJson(status["attempt"]), R"({"generation":1,"worldSize":2,"members":[0,1]})");

  first.Send(wire::CheckpointSaved{
      .rank = 0, .generation = 1, .step = 5, .path = "out/checkpoint-5", .warning = ""});
  first.Send(wire::Finished{0, 10, "out"});
  ASSERT_TRUE(AwaitTrue([&] { return StatusOf().contains("finished"); }));
  SetPodPhase("job-0-0", "Succeeded");
  SetPodPhase("job-1-0", "Succeeded");
  ASSERT_TRUE(AwaitPhase("Succeeded"));
  status = StatusOf();
  EXPECT_EQ(status["message"], "all 10 steps are done");
  EXPECT_EQ(status["checkpoint"]["step"], 5);
  EXPECT_EQ(status["checkpoint"]["fenceGeneration"], 1);
  EXPECT_TRUE(AwaitTrue([&] { return observer_.Count("phase Succeeded") == 1; }));
  // The pods have ended: nobody deletes them.
  EXPECT_TRUE(Has("Pod", "job-0-0"));
}

TEST_F(ControllerTest, AGenerationIsAnnouncedOnlyOnceItIsInStatus) {
  std::atomic<bool> refuse = true;
  std::atomic<int> refused = 0;
  client_->before_update_status = [&](const OrderedJson& object) -> Status {
    if (!refuse || !object["status"].contains("attempt")) return {};
    ++refused;
    return Unavailable("the API server is away");
  };
  Start();
  CreateJob();
  FrameSocket socket = Connect(0);
  socket.Send(wire::ProcessStarted{0, 100});
  socket.Send(wire::Ready{0, "e0"});
  ASSERT_TRUE(AwaitTrue([&] { return refused >= 3; }));
  EXPECT_EQ(observer_.Count("membership 1"), 0);
  EXPECT_FALSE(StatusOf().contains("attempt"));
  refuse = false;
  EXPECT_EQ(socket.Await<wire::Membership>()->generation, 1u);
  EXPECT_EQ(StatusOf()["attempt"]["generation"], 1);
}

TEST_F(ControllerTest, GenerationsGrowOnFromStatus) {
  CreateJob();
  ChangeStatus(names::kKind, "job", [](OrderedJson& status) {
    status = {{"phase", "Pending"},
              {"logicalWorld", 1},
              {"threadsPerProcess", 2},
              {"attempt", {{"generation", 41}}},
              {"checkpoint", {{"step", 9}}}};
  });
  Start();
  FrameSocket socket = Connect(0);
  socket.Send(wire::Ready{0, "e0"});
  const auto membership = socket.Await<wire::Membership>();
  ASSERT_TRUE(membership.has_value());
  EXPECT_EQ(membership->generation, 42u);
  EXPECT_EQ(membership->durable_step, 9);
}

TEST_F(ControllerTest, AKilledProcessIsStartedAgainInPlace) {
  Start();
  CreateJob({{"replicas", 2}});
  auto [first, second] = TrainingPair();
  second.Send(wire::ProcessDied{
      .rank = 1, .generation = 1, .cause = wire::DeathCause::kSignaled, .signal = SIGKILL});
  EXPECT_EQ(second.Await<wire::StartProcess>()->rank, 1);
  EXPECT_EQ(first.Await<wire::Membership>()->generation, 2u);
  first.Send(wire::Regrouped{0, 2, 0});
  EXPECT_TRUE(AwaitPhase("Recovering"));
  const OrderedJson status = StatusOf();
  EXPECT_EQ(DumpJson(status["attempt"]), R"({"generation":2,"worldSize":1,"members":[0]})");
  EXPECT_EQ(status["restarts"]["inPlace"], 1);
  EXPECT_EQ(status["incidents"][0]["cause"], "signaled");
  EXPECT_EQ(status["incidents"][0]["rank"], 1);
  EXPECT_THAT(status["incidents"][0]["action"].get<std::string>(), HasSubstr("in place"));
  EXPECT_TRUE(Has("Pod", "job-1-0"));
}

TEST_F(ControllerTest, AFatalExitCodeFailsTheJobAndEndsItsPods) {
  Start();
  CreateJob({{"replicas", 2}});
  auto [first, second] = TrainingPair();
  second.Send(wire::ProcessDied{
      .rank = 1, .generation = 1, .cause = wire::DeathCause::kExited, .exit_code = 2});
  ASSERT_TRUE(AwaitPhase("Failed"));
  const OrderedJson status = StatusOf();
  EXPECT_EQ(status["failure"], "rank 1 exited with code 2, which a restart does not cure");
  EXPECT_EQ(status["message"], status["failure"]);
  EXPECT_TRUE(AwaitTrue(
      [&] { return (*store_->Get("Pod", "job-0-0"))["metadata"].contains("deletionTimestamp"); }));
}

TEST_F(ControllerTest, WhatAProcessCallsFatalFailsTheJob) {
  Start();
  CreateJob();
  FrameSocket socket = Connect(0);
  socket.Send(wire::Fatal{0, "sft.yaml:3: dataset: is missing"});
  ASSERT_TRUE(AwaitPhase("Failed"));
  EXPECT_EQ(StatusOf()["message"], "sft.yaml:3: dataset: is missing");
}

TEST_F(ControllerTest, APodThatVanishesIsReplacedThoughItsObjectLooksAlive) {
  Start();
  CreateJob({{"replicas", 2}});
  auto [first, second] = TrainingPair();
  second.Close();

  ASSERT_TRUE(AwaitPod("job-1-1"));
  EXPECT_EQ(first.Await<wire::Membership>()->generation, 2u);
  ASSERT_TRUE(AwaitTrue(
      [&] { return (*store_->Get("Pod", "job-1-0"))["metadata"].contains("deletionTimestamp"); }));
  ASSERT_TRUE(AwaitTrue([&] { return StatusOf().contains("restarts"); }));
  EXPECT_EQ(StatusOf()["restarts"]["recreated"], 1);
  EXPECT_EQ(StatusOf()["restarts"]["total"], 1);
  // The old one is fenced, the new one is let in.
  EXPECT_TRUE(Dial(1, 0).Await<wire::Fenced>().has_value());
  FrameSocket newcomer = Connect(1, 1);
  newcomer.Send(wire::ProcessStarted{1, 200});
  newcomer.Send(wire::Ready{1, "e2"});
  first.Send(wire::Regrouped{0, 2, 0});
  const auto grown = first.Await<wire::Membership>();
  ASSERT_TRUE(grown.has_value());
  EXPECT_EQ(grown->members.size(), 2u);
  // Its end, seen later, is not charged a second time.
  SetPodPhase("job-1-0", "Failed");
  ChangeSpec([](OrderedJson& spec) { spec["ttlSecondsAfterFinished"] = 5; });
  ASSERT_TRUE(AwaitTrue([&] { return StatusOf()["observedGeneration"] == 2; }));
  EXPECT_EQ(StatusOf()["restarts"]["total"], 1);
  EXPECT_FALSE(Has("Pod", "job-1-2"));
}

TEST_F(ControllerTest, ADeathInAPodThatIsBeingDeletedIsNotCharged) {
  Start();
  CreateJob({{"replicas", 2}});
  auto [first, second] = TrainingPair();
  ASSERT_TRUE(store_->Delete("Pod", "job-1-0").has_value());
  second.Send(wire::ProcessDied{
      .rank = 1, .generation = 1, .cause = wire::DeathCause::kExited, .exit_code = 130});
  EXPECT_EQ(first.Await<wire::Membership>()->generation, 2u);
  SetPodPhase("job-1-0", "Failed");
  ASSERT_TRUE(store_->Remove("Pod", "job-1-0").has_value());
  ASSERT_TRUE(AwaitPod("job-1-1"));
  EXPECT_FALSE(StatusOf().contains("restarts"));
}

TEST_F(ControllerTest, WhatWasFencedBeforeTheOperatorStartedStaysFenced) {
  CreateJob();
  ChangeStatus(names::kKind, "job", [](OrderedJson& status) {
    status = {{"phase", "Pending"}, {"incarnations", OrderedJson::array({2})}};
  });
  CreatePod(0, 2);
  Start();
  Connect(0, 2);
  EXPECT_TRUE(Dial(0, 1).Await<wire::Fenced>().has_value());
}

TEST_F(ControllerTest, ASuspendedJobSavesAndAResumedOneGoesOn) {
  Start();
  CreateJob({{"replicas", 2}});
  auto [first, second] = TrainingPair();
  ChangeSpec([](OrderedJson& spec) { spec["suspend"] = true; });
  EXPECT_EQ(first.Await<wire::Stop>()->reason, "the job is suspended");
  EXPECT_TRUE(second.Await<wire::Stop>().has_value());
  ASSERT_TRUE(AwaitPhase("Suspended"));
  second.Send(wire::ProcessDied{
      .rank = 1, .generation = 1, .cause = wire::DeathCause::kExited, .exit_code = 130});
  ASSERT_TRUE(AwaitTrue(
      [&] { return (*store_->Get("Pod", "job-1-0"))["metadata"].contains("deletionTimestamp"); }));
  ASSERT_TRUE(store_->Remove("Pod", "job-0-0").has_value());
  ASSERT_TRUE(store_->Remove("Pod", "job-1-0").has_value());
  first.Close();
  second.Close();
  EXPECT_FALSE(StatusOf().contains("restarts"));

  ChangeSpec([](OrderedJson& spec) { spec["suspend"] = false; });
  FrameSocket third = Connect(0, 1), fourth = Connect(1, 1);
  third.Send(wire::Ready{0, "e2"});
  fourth.Send(wire::Ready{1, "e3"});
  const auto membership = third.Await<wire::Membership>();
  ASSERT_TRUE(membership.has_value());
  EXPECT_EQ(membership->generation, 2u);
}

TEST_F(ControllerTest, APodOfAnEarlierJobOfTheSameNameIsNotTakenOver) {
  CreateJob();
  CreatePod(0, 0, "another job's uid");
  SetPodPhase("job-0-0", "Running");
  Start();
  // Its name is taken: the next one.
  ASSERT_TRUE(AwaitPod("job-0-1"));
  EXPECT_EQ(StatusOf()["replicaStatuses"]["running"], 0);
  EXPECT_FALSE(StatusOf().contains("restarts"));
}

TEST_F(ControllerTest, ADeletedJobIsServedNoMore) {
  Start();
  CreateJob();
  FrameSocket socket = Connect(0);
  ASSERT_TRUE(store_->Delete(names::kKind, "job").has_value());
  EXPECT_TRUE(socket.AwaitClosed());
}

TEST_F(ControllerTest, AChargeOfTheFastLoopMeanwhileIsNotOverwritten) {
  CreateJob();
  ChangeStatus(names::kKind, "job", [](OrderedJson& status) {
    status = {{"phase", "Running"}, {"incarnations", OrderedJson::array({0})}};
  });
  CreatePod(0, 0);
  SetPodPhase("job-0-0", "Failed");
  // Between the look at the job and the decision's write.
  const auto looked = std::make_shared<std::atomic<bool>>(false);  // outlives the controller
  client_->before_list_of = [this, looked] {
    if (looked->exchange(true)) return;
    ChangeStatus(names::kKind, "job", [](OrderedJson& status) {
      status["restarts"] = {{"total", 1}, {"chargedAt", {std::time(nullptr)}}, {"lastStep", 3}};
    });
  };
  Start();
  ASSERT_TRUE(AwaitPod("job-0-1"));
  ASSERT_TRUE(AwaitTrue([&] { return StatusOf()["restarts"]["total"] == 2; }));
  EXPECT_EQ(StatusOf()["restarts"]["chargedAt"].size(), 2u);
}

TEST_F(ControllerTest, WritersDoNotLoseEachOthersFields) {
  Start();
  CreateJob();
  ASSERT_TRUE(AwaitPod("job-0-0"));
  constexpr int kRounds = 20;
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (int i = 1; i <= kRounds; ++i) {
      controller_->OnCheckpoint("job", {.rank = 0, .step = i, .path = "p", .warning = ""});
    }
  });
  threads.emplace_back([&] {
    for (uint64_t i = 1; i <= kRounds; ++i) {
      controller_->PersistMembership("job", {.generation = i, .members = {}}, [](const Status& s) {
        EXPECT_TRUE(s.has_value()) << s.error().message;
      });
    }
  });
  threads.emplace_back([&] {
    for (uint64_t i = 1; i <= kRounds; ++i) {
      Incident incident;
      incident.id = i;
      incident.rank = 0;
      controller_->OnIncidentUpdated("job", incident);
    }
  });
  threads.emplace_back([&] {
    for (int i = 1; i <= kRounds; ++i) {
      ChangeSpec([&](OrderedJson& spec) { spec["ttlSecondsAfterFinished"] = i; });
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(AwaitTrue([&] {
    OrderedJson status = StatusOf();
    return status["observedGeneration"] == kRounds + 1 && status["checkpoint"]["step"] == kRounds &&
           status["attempt"]["generation"] == kRounds && status["incidents"][0]["id"] == kRounds;
  })) << StatusOf();
  EXPECT_EQ(StatusOf()["incidents"].size(), 10u);
  EXPECT_EQ(StatusOf()["incarnations"], OrderedJson::array({0}));
}

TEST_F(ControllerTest, ChangesAfterItsEndDisturbNobody) {
  Start();
  CreateJob();
  ASSERT_TRUE(AwaitPod("job-0-0"));
  EndController();
  controller_.reset();
  SetPodPhase("job-0-0", "Failed");
  ASSERT_TRUE(store_->Delete("Pod", "job-0-0").has_value());
  EXPECT_FALSE(Has("Pod", "job-0-1"));
}

}  // namespace
}  // namespace everstep
