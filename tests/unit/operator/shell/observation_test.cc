#include "operator/shell/observation.h"

#include <gtest/gtest.h>

namespace everstep {
namespace {

PodView View(const std::string& text) {
  const auto pod = ParseOrderedJson(text, "pod");
  EXPECT_TRUE(pod.has_value()) << pod.error().message;
  return ViewOfPod(*pod);
}

TEST(ObservationTest, ARunningPod) {
  const PodView view = View(R"({
    "metadata": {"name": "job-1-3", "labels": {"everstep.dev/replica": "1",
                                               "everstep.dev/incarnation": "3"}},
    "spec": {"nodeName": "node2"},
    "status": {"phase": "Running"}})");
  EXPECT_EQ(view.name, "job-1-3");
  EXPECT_EQ(view.replica, 1);
  EXPECT_EQ(view.incarnation, 3);
  EXPECT_EQ(view.phase, PodPhase::kRunning);
  EXPECT_EQ(view.node, "node2");
  EXPECT_FALSE(view.deleting);
  EXPECT_FALSE(view.disrupted);
}

TEST(ObservationTest, APodOfWhichNothingIsKnownIsPending) {
  for (const char* text : {"{}", R"({"metadata": {"labels": {"everstep.dev/replica": "x"}}})",
                           R"({"status": {"phase": "Unknown"}})"}) {
    const PodView view = View(text);
    EXPECT_EQ(view.phase, PodPhase::kPending);
    EXPECT_EQ(view.exit_code, 0);
    EXPECT_EQ(view.waiting, "");
  }
}

TEST(ObservationTest, WhatAPodWaitsFor) {
  EXPECT_EQ(View(R"({"status": {"conditions": [{"type": "PodScheduled", "status": "False",
                     "reason": "Unschedulable", "message": "0/3 nodes"}]}})")
                .waiting,
            "Unschedulable: 0/3 nodes");
  EXPECT_EQ(View(R"({"status": {"containerStatuses": [
                     {"state": {"waiting": {"reason": "ContainerCreating"}}},
                     {"state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}]}})")
                .waiting,
            "ErrImagePull: no");
  EXPECT_EQ(View(R"({"status": {"initContainerStatuses": [
                     {"state": {"waiting": {"reason": "CreateContainerConfigError"}}}]}})")
                .waiting,
            "CreateContainerConfigError");
}

TEST(ObservationTest, HowAPodEnded) {
  const PodView view = View(R"({"status": {"phase": "Failed", "containerStatuses": [
      {"name": "sidecar", "state": {"terminated": {"exitCode": 0}}},
      {"name": "worker", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled",
                                   "finishedAt": "1970-01-01T00:01:00Z"}}}]}})");
  EXPECT_EQ(view.phase, PodPhase::kFailed);
  EXPECT_EQ(view.exit_code, 137);
  EXPECT_EQ(view.ended_unix_seconds, 60);
  EXPECT_NE(view.message.find("OOMKilled"), std::string::npos);
}

// An evicted pod has no container statuses.
TEST(ObservationTest, AnEvictedPodHasNoExitCode) {
  const PodView view = View(R"({"status": {"phase": "Failed", "reason": "Evicted",
      "message": "The node was low on resource: memory.",
      "conditions": [{"type": "DisruptionTarget", "status": "True"}]}})");
  EXPECT_TRUE(view.disrupted);
  EXPECT_EQ(view.exit_code, 0);
  EXPECT_FALSE(view.ended_unix_seconds.has_value());
  EXPECT_EQ(view.message, "The node was low on resource: memory.");
}

TEST(ObservationTest, WhoIsTakenAway) {
  EXPECT_TRUE(IsBeingTakenAway({{"metadata", {{"deletionTimestamp", "1970-01-01T00:01:00Z"}}}}));
  EXPECT_TRUE(IsBeingTakenAway({{"status",
                                 {{"conditions", OrderedJson::array({{{"type", "DisruptionTarget"},
                                                                      {"status", "True"}}})}}}}));
  EXPECT_FALSE(IsBeingTakenAway({{"metadata", {{"name", "a"}}}}));
  EXPECT_EQ(
      View(R"({"metadata": {"deletionTimestamp": "1970-01-01T00:01:00Z"}})").gone_by_unix_seconds,
      60);
}

TEST(ObservationTest, WhichClaimsManyNodesCanMount) {
  const auto one_node_only = [](const OrderedJson& modes) {
    return ViewOfClaim({{"spec", {{"accessModes", modes}}}}).one_node_only;
  };
  EXPECT_FALSE(one_node_only(OrderedJson::array({"ReadWriteOnce", "ReadWriteMany"})));
  EXPECT_TRUE(one_node_only(OrderedJson::array({"ReadWriteOnce"})));
  EXPECT_TRUE(one_node_only(OrderedJson::array({"ReadWriteOncePod"})));
}

}  // namespace
}  // namespace everstep
