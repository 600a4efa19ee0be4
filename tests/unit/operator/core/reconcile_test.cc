// What the scenarios (tests/scenarios) do not say well: conditions, and what cannot happen to a
// status of any shape. The decisions themselves are there.
#include "operator/core/reconcile.h"

#include <gtest/gtest.h>

#include <set>

#include "operator/api/conditions.h"
#include "operator/api/document.h"
#include "operator/api/timestamp.h"

namespace everstep {
namespace {

class ReconcileTest : public testing::Test {
 protected:
  ReconcileTest() {
    observed_.job.name = "job";
    observed_.job.generation = 3;
    observed_.job.spec.replicas = 2;
    observed_.job.spec.train = {{"stage", "sft"}};
    observed_.has_service = observed_.has_config_map = observed_.has_network_policy = true;
    observed_.claim = ClaimView{};
  }
  PodView Pod(int replica, int incarnation, PodPhase phase) {
    PodView pod;
    pod.name = "job-" + std::to_string(replica) + "-" + std::to_string(incarnation);
    pod.replica = replica;
    pod.incarnation = incarnation;
    pod.phase = phase;
    return pod;
  }
  Plan Run() {
    Plan plan = Reconcile(observed_, clock_.WallNow());
    observed_.status = plan.status;
    return plan;
  }
  // Those follow from what the job needs, whatever its phase.
  static bool IsOfResources(const std::string& type) {
    return type == "VolumesReady" || type == "QuotaAvailable" || type == "CheckpointHealthy";
  }
  std::set<std::string> TrueConditions() {
    std::set<std::string> found;
    for (const OrderedJson& condition : observed_.status["conditions"]) {
      const auto type = condition["type"].get<std::string>();
      if (!IsOfResources(type) && condition["status"] == "True") found.insert(type);
    }
    return found;
  }

  Observed observed_;
  ManualClock clock_;
};

TEST_F(ReconcileTest, ConditionsOfResourcesNameTheProblem) {
  const auto condition = [&](const std::string& type) {
    for (const OrderedJson& entry : observed_.status["conditions"]) {
      if (entry["type"] == type) {
        return entry["status"].get<std::string>() + " " + entry["reason"].get<std::string>();
      }
    }
    return std::string("absent");
  };
  Run();
  EXPECT_EQ(condition("VolumesReady"), "True Found");
  EXPECT_EQ(condition("QuotaAvailable"), "True Available");
  EXPECT_EQ(condition("CheckpointHealthy"), "True Saved");

  observed_.claim = ClaimView{.one_node_only = true};
  observed_.status["checkpointWarning"] = "the disk is full";
  MarkCreateFailed(observed_.status, "exceeded quota", true, UnixSeconds(clock_.WallNow()));
  Run();
  EXPECT_EQ(condition("VolumesReady"), "False ReadWriteOnce");
  EXPECT_EQ(condition("QuotaAvailable"), "False Exceeded");
  EXPECT_EQ(condition("CheckpointHealthy"), "False SaveFailed");

  observed_.claim.reset();
  Run();
  EXPECT_EQ(condition("VolumesReady"), "False ClaimNotFound");
}

TEST_F(ReconcileTest, CountsAreForPeopleToo) {
  observed_.pods = {Pod(0, 0, PodPhase::kRunning), Pod(1, 0, PodPhase::kPending)};
  Run();
  EXPECT_EQ(observed_.status["ready"], "1/2");
  EXPECT_EQ(observed_.status["selector"], "everstep.dev/job=job");
}

TEST_F(ReconcileTest, ConditionsFollowThePhase) {
  using Set = std::set<std::string>;
  const std::pair<const char*, Set> kCases[] = {
      {"Pending", {"Reconciling"}},
      {"Running", {"Ready", "Running"}},
      {"Recovering", {"Reconciling", "Recovering"}},
      {"Succeeded", {"Ready", "Succeeded"}},
      {"Failed", {"Failed", "Stalled"}},
  };
  observed_.pods = {Pod(0, 0, PodPhase::kRunning), Pod(1, 0, PodPhase::kRunning)};
  for (const auto& [phase, conditions] : kCases) {
    observed_.status = {{"phase", phase}};
    Run();
    EXPECT_EQ(TrueConditions(), conditions) << phase;
  }
  observed_.job.spec.suspend = true;
  observed_.status = {{"phase", "Running"}};
  Run();
  EXPECT_EQ(TrueConditions(), Set{"Suspended"});
}

TEST_F(ReconcileTest, ConditionsKnowTheGenerationTheyWereMadeFrom) {
  Run();
  for (const OrderedJson& condition : observed_.status["conditions"]) {
    EXPECT_EQ(condition["observedGeneration"], 3);
  }
}

TEST_F(ReconcileTest, AFailuresMessageIsInItsCondition) {
  observed_.status = {{"phase", "Running"}, {"failure", "loss is NaN"}};
  Run();
  for (const OrderedJson& condition : observed_.status["conditions"]) {
    if (condition["type"] == "Failed") {
      EXPECT_EQ(condition["message"], "loss is NaN");
      EXPECT_EQ(condition["reason"], "Failed");
    }
  }
}

TEST_F(ReconcileTest, TheSameLookAtTheSameTimeIsTheSamePlan) {
  const Plan first = Reconcile(observed_, clock_.WallNow());
  const Plan second = Reconcile(observed_, clock_.WallNow());
  EXPECT_EQ(DumpJson(first.status), DumpJson(second.status));
  EXPECT_EQ(first.actions.size(), second.actions.size());
}

TEST_F(ReconcileTest, WhatOthersWroteToStatusStays) {
  observed_.status = {{"phase", "Running"},
                      {"attempt", {{"generation", 7}}},
                      {"incidents", {{{"id", 1}}}},
                      {"unknown", "kept"}};
  Run();
  EXPECT_EQ(observed_.status["attempt"]["generation"], 7);
  EXPECT_EQ(observed_.status["incidents"].size(), 1u);
  EXPECT_EQ(observed_.status["unknown"], "kept");
}

TEST_F(ReconcileTest, EveryNewPodIsFencedJustBeforeItIsCreated) {
  observed_.pods = {Pod(0, 4, PodPhase::kFailed)};
  const Plan plan = Run();
  int creations = 0;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const auto* create = std::get_if<CreateObject>(&plan.actions[i]);
    if (create == nullptr) continue;
    ++creations;
    ASSERT_GT(i, 0u);
    const auto& fence = std::get<FenceReplica>(plan.actions[i - 1]);
    EXPECT_EQ(create->object["metadata"]["name"],
              "job-" + std::to_string(fence.replica) + "-" + std::to_string(fence.incarnation));
  }
  EXPECT_EQ(creations, 2);
}

TEST_F(ReconcileTest, LostAndChargedPodsAreNotedOnce) {
  OrderedJson status = OrderedJson::object();
  MarkPodLost(status, "job-1-0");
  MarkPodLost(status, "job-1-0");
  MarkPodLost(status, "job-2-0");
  EXPECT_EQ(DumpJson(status["lostPods"]), R"(["job-1-0","job-2-0"])");
  MarkPodCharged(status, "job-1-0", 1, 50);
  MarkPodCharged(status, "job-1-1", 1, 60);
  EXPECT_EQ(DumpJson(status["chargedPods"]), R"({"1":"job-1-1"})");
  EXPECT_EQ(DumpJson(status["notBefore"]), R"({"1":60})");
}

TEST_F(ReconcileTest, OnlySucceededAndFailedAreTerminal) {
  EXPECT_TRUE(IsTerminal({{"phase", "Succeeded"}}));
  EXPECT_TRUE(IsTerminal({{"phase", "Failed"}}));
  for (const char* phase : {"Pending", "Running", "Recovering", "Suspended", ""}) {
    EXPECT_FALSE(IsTerminal({{"phase", phase}}));
  }
  EXPECT_FALSE(IsTerminal(OrderedJson()));
  EXPECT_FALSE(IsTerminal(OrderedJson::object()));
}

}  // namespace
}  // namespace everstep
