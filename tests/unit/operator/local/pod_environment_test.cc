#include "operator/local/pod_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/operator/local/pod_objects.h"

namespace everstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class PodEnvironmentTest : public testing::Test {
 protected:
  std::map<std::string, std::string> Resolve() {
    const auto environment = ResolveEnvironment(pod_, volumes_, context_);
    EXPECT_TRUE(environment.has_value()) << environment.error().message;
    return environment ? *environment : std::map<std::string, std::string>{};
  }
  std::string Translated(const std::string& value) {
    OrderedJson pod = pod_;
    AddEnv(pod, "X", value);
    return ResolveEnvironment(pod, volumes_, context_)->at("X");
  }

  OrderedJson pod_ = MakePod("job-0-0", {"sleep", "1"});
  PodVolumes volumes_{{{"checkpoint", "/home/me/runs/claims/c"}, {"train", "/home/me/config/t"}}};
  ResolveContext context_{"127.0.1.1", "local", {{"job-0.job", "127.0.1.1"}}};
};

TEST_F(PodEnvironmentTest, PlainValuesStayAndTheLastOneWins) {
  AddEnv(pod_, "A", "1");
  AddEnv(pod_, "B", "");
  AddEnv(pod_, "A", "2");
  EXPECT_THAT(Resolve(), ElementsAre(std::pair("A", "2"), std::pair("B", "")));
}

TEST_F(PodEnvironmentTest, FieldsOfThePodAreFilledIn) {
  AddField(pod_, "EVERSTEP_POD_IP", "status.podIP");
  AddField(pod_, "EVERSTEP_NODE", "spec.nodeName");
  EXPECT_THAT(Resolve(), ElementsAre(std::pair("EVERSTEP_NODE", "local"),
                                     std::pair("EVERSTEP_POD_IP", "127.0.1.1")));
}

TEST_F(PodEnvironmentTest, WhatOnlyAClusterHasIsRefused) {
  AddField(pod_, "UID", "metadata.uid");
  const auto environment = ResolveEnvironment(pod_, volumes_, context_);
  ASSERT_FALSE(environment.has_value());
  EXPECT_EQ(environment.error().message,
            "spec.env: UID: valueFrom is not available without a cluster: give a value");

  OrderedJson secret = MakePod("job-0-0", {"true"});
  secret["spec"]["containers"][0]["env"].push_back(
      {{"name", "S"}, {"valueFrom", {{"secretKeyRef", {{"name", "s"}, {"key", "k"}}}}}});
  EXPECT_FALSE(ResolveEnvironment(secret, volumes_, context_).has_value());
}

TEST_F(PodEnvironmentTest, PathsBelowAMountAreTranslated) {
  AddMount(pod_, "checkpoint", "/checkpoints");
  AddMount(pod_, "train", "/etc/everstep");
  EXPECT_EQ(Translated("/checkpoints"), "/home/me/runs/claims/c");
  EXPECT_EQ(Translated("/checkpoints/a/b"), "/home/me/runs/claims/c/a/b");
  EXPECT_EQ(Translated("/etc/everstep/train.yaml"), "/home/me/config/t/train.yaml");
  EXPECT_EQ(Translated("/checkpoints2/a"), "/checkpoints2/a");
  EXPECT_EQ(Translated("/home"), "/home");
  EXPECT_EQ(Translated("checkpoints/a"), "checkpoints/a");
}

TEST_F(PodEnvironmentTest, AMountOfAVolumeThatIsNotHereIsLeftAlone) {
  AddMount(pod_, "scratch", "/scratch");
  EXPECT_EQ(Translated("/scratch/x"), "/scratch/x");
}

TEST_F(PodEnvironmentTest, ThePodsNamesBecomeTheirAddresses) {
  EXPECT_EQ(Translated("job-0.job"), "127.0.1.1");
  EXPECT_EQ(Translated("job-9.job"), "job-9.job");
  EXPECT_EQ(Translated("http://job-0.job"), "http://job-0.job");
}

TEST_F(PodEnvironmentTest, OnlyTheWorkerContainerCounts) {
  OrderedJson& containers = pod_["spec"]["containers"];
  const OrderedJson sidecar = {{"name", "sidecar"}, {"env", {{{"name", "S"}, {"value", "1"}}}}};
  containers.insert(containers.begin(), sidecar);
  EXPECT_THAT(Resolve(), IsEmpty());
  EXPECT_THAT(*WorkerCommand(pod_), ElementsAre("sleep", "1"));

  pod_["spec"]["containers"][1]["name"] = "other";
  EXPECT_EQ(WorkerCommand(pod_).error().message, "the pod has no container named 'worker'");
  EXPECT_FALSE(ResolveEnvironment(pod_, volumes_, context_).has_value());
}

TEST_F(PodEnvironmentTest, AContainerMayHaveNoEnvironmentAndNoCommand) {
  pod_["spec"]["containers"][0] = {{"name", "worker"}};
  EXPECT_THAT(Resolve(), IsEmpty());
  EXPECT_THAT(*WorkerCommand(pod_), IsEmpty());
}

TEST(PodAddressTest, EveryReplicaHasItsOwn) {
  EXPECT_EQ(PodAddress(0), "127.0.1.1");
  EXPECT_EQ(PodAddress(3), "127.0.1.4");
  EXPECT_EQ(PodAddress(253), "127.0.1.254");
  EXPECT_EQ(PodAddress(254), "127.0.2.1");
  std::set<std::string> addresses;
  for (int replica = 0; replica < 4096; ++replica) addresses.insert(PodAddress(replica));
  EXPECT_EQ(addresses.size(), 4096u);
}

}  // namespace
}  // namespace everstep
