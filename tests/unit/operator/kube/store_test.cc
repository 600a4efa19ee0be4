#include "operator/kube/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace everstep::kube {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

OrderedJson Pod(const std::string& name, int version, const std::string& job = "",
                const std::string& space = "team") {
  OrderedJson pod = {
      {"kind", "Pod"},
      {"metadata",
       {{"name", name}, {"namespace", space}, {"resourceVersion", std::to_string(version)}}}};
  if (!job.empty()) pod["metadata"]["labels"] = {{"everstep.dev/job", job}};
  return pod;
}

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    store_.Subscribe([&](const std::string& kind, const std::string& key) {
      changes_.push_back(kind + " " + key);
    });
  }
  std::vector<std::string> KeysOf(const std::vector<OrderedJson>& objects) {
    std::vector<std::string> names;
    for (const OrderedJson& object : objects) names.push_back(object["metadata"]["name"]);
    return names;
  }
  int VersionOf(const std::string& key) {
    const auto object = store_.Get("Pod", key);
    return object ? std::stoi((*object)["metadata"]["resourceVersion"].get<std::string>()) : -1;
  }

  Store store_;
  std::vector<std::string> changes_;
};

TEST_F(StoreTest, ChangesAreToldOnce) {
  store_.Put(Pod("a", 5));
  store_.Put(Pod("a", 5));
  store_.Put(Pod("a", 6));
  store_.Remove(Pod("a", 7));
  store_.Remove(Pod("a", 7));
  EXPECT_THAT(changes_, ElementsAre("Pod team/a", "Pod team/a", "Pod team/a"));
}

TEST_F(StoreTest, AnOlderObjectNeverReplacesANewerOne) {
  store_.Put(Pod("a", 10));
  store_.Put(Pod("a", 9));
  EXPECT_EQ(VersionOf("team/a"), 10);
  // As numbers, not as texts.
  store_.Put(Pod("a", 100));
  EXPECT_EQ(VersionOf("team/a"), 100);
}

TEST_F(StoreTest, WhatIsGoneStaysGone) {
  store_.Put(Pod("a", 10));
  store_.Remove(Pod("a", 12));
  store_.Put(Pod("a", 11));
  EXPECT_EQ(VersionOf("team/a"), -1);
  store_.Put(Pod("a", 13));
  EXPECT_EQ(VersionOf("team/a"), 13);
  // The end of an earlier one of the same name.
  store_.Remove(Pod("a", 12));
  EXPECT_EQ(VersionOf("team/a"), 13);
}

TEST_F(StoreTest, WhatWasSeenToGoBeforeItWasKnownStaysGone) {
  store_.Remove(Pod("a", 12));
  store_.Put(Pod("a", 11));
  EXPECT_EQ(VersionOf("team/a"), -1);
  EXPECT_THAT(changes_, IsEmpty());
}

TEST_F(StoreTest, OfManyThatWentTheOldestIsForgottenFirst) {
  constexpr int kMany = 20'000;
  for (int i = 0; i < kMany; ++i) store_.Remove(Pod("z" + std::to_string(i), 12));
  store_.Remove(Pod("a", 12));
  for (int i = 0; i < 10; ++i) store_.Remove(Pod("y" + std::to_string(i), 12));
  store_.Put(Pod("a", 11));
  EXPECT_EQ(VersionOf("team/a"), -1);
  store_.Put(Pod("z0", 11));
  EXPECT_EQ(VersionOf("team/z0"), 11);
}

TEST_F(StoreTest, AListRemovesWhatItDoesNotHave) {
  store_.Put(Pod("a", 1));
  store_.Put(Pod("b", 2));
  store_.Put(Pod("made-later", 50));
  store_.Put(Pod("elsewhere", 3, "", "other"));
  changes_.clear();
  store_.Replace("Pod", "team", {Pod("b", 2), Pod("c", 20)}, "40");
  EXPECT_THAT(KeysOf(store_.List("Pod")), ElementsAre("elsewhere", "b", "c", "made-later"));
  EXPECT_THAT(changes_, ElementsAre("Pod team/c", "Pod team/a"));
  store_.Replace("Pod", "", {}, "60");
  EXPECT_THAT(store_.List("Pod"), IsEmpty());
}

TEST_F(StoreTest, TheSameListTwiceChangesNothing) {
  store_.Replace("Pod", "", {Pod("a", 1), Pod("b", 2)}, "5");
  changes_.clear();
  store_.Replace("Pod", "", {Pod("a", 1), Pod("b", 2)}, "6");
  EXPECT_THAT(changes_, IsEmpty());
}

TEST_F(StoreTest, PodsOfAJobAreThoseOfItsNamespace) {
  store_.Put(Pod("a", 1, "job"));
  store_.Put(Pod("b", 2, "job"));
  store_.Put(Pod("c", 3, "job", "other"));
  store_.Put(Pod("d", 4, "another"));
  EXPECT_THAT(KeysOf(store_.ListOf("Pod", "team/job")), ElementsAre("a", "b"));
  store_.Remove(Pod("a", 5, "job"));
  store_.Put(Pod("b", 6, "another"));
  EXPECT_THAT(store_.ListOf("Pod", "team/job"), IsEmpty());
  EXPECT_THAT(KeysOf(store_.ListOf("Pod", "team/another")), ElementsAre("b", "d"));
}

TEST_F(StoreTest, OfAPodOnlyWhatIsLookedAtIsKept) {
  OrderedJson pod = Pod("a", 1, "job");
  pod["metadata"]["managedFields"] = {{"big", true}};
  pod["metadata"]["annotations"] = {{"big", "text"}};
  pod["spec"] = {{"nodeName", "n"}, {"containers", {{{"name", "worker"}}}}};
  pod["status"] = {{"phase", "Running"}, {"qosClass", "Burstable"}};
  store_.Put(pod);
  const OrderedJson kept = *store_.Get("Pod", "team/a");
  EXPECT_FALSE(kept["metadata"].contains("managedFields"));
  EXPECT_FALSE(kept["metadata"].contains("annotations"));
  EXPECT_EQ(DumpJson(kept["spec"]), R"({"nodeName":"n"})");
  EXPECT_EQ(DumpJson(kept["status"]), R"({"phase":"Running"})");
}

TEST_F(StoreTest, AJobIsKeptWholeButForManagedFields) {
  OrderedJson job = {
      {"kind", "TrainingJob"},
      {"metadata", {{"name", "j"}, {"annotations", {{"a", "b"}}}, {"managedFields", {1}}}},
      {"spec", {{"replicas", 2}}}};
  store_.Put(job);
  job["metadata"].erase("managedFields");
  EXPECT_EQ(*store_.Get("TrainingJob", "j"), job);
}

}  // namespace
}  // namespace everstep::kube
