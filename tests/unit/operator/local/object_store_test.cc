#include "operator/local/object_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "operator/api/names.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/operator/local/pod_objects.h"

namespace everstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class ObjectStoreTest : public testing::Test {
 protected:
  ObjectStoreTest() { Reopen(); }
  void Reopen() {
    store_.reset();
    auto store = ObjectStore::Open(directory_.path(), clock_);
    ASSERT_TRUE(store.has_value()) << store.error().message;
    store_ = std::move(*store);
  }
  OrderedJson Create(const OrderedJson& object) {
    const auto created = store_->Create(object);
    EXPECT_TRUE(created.has_value()) << created.error().message;
    return created ? *created : OrderedJson();
  }
  OrderedJson Get(const std::string& kind, const std::string& name) {
    const auto object = store_->Get(kind, name);
    EXPECT_TRUE(object.has_value()) << object.error().message;
    return object ? *object : OrderedJson();
  }
  std::vector<std::string> Names(const std::string& kind) {
    const auto objects = store_->List(kind);
    std::vector<std::string> found;
    for (const OrderedJson& object : *objects) found.push_back(object["metadata"]["name"]);
    return found;
  }
  OrderedJson CreateRunningPod(const std::string& name, const OrderedJson& owner) {
    OrderedJson pod = Create(OwnedBy(MakePod(name, {"true"}), owner));
    pod["status"] = {{"phase", "Running"}};
    const auto running = store_->UpdateStatus(pod);
    EXPECT_TRUE(running.has_value());
    return running ? *running : OrderedJson();
  }

  TempDir directory_;
  ManualClock clock_;
  std::unique_ptr<ObjectStore> store_;
};

TEST_F(ObjectStoreTest, CreateFillsInWhatTheApiServerDoes) {
  const OrderedJson job = Create(MakeObject("TrainingJob", "a"));
  EXPECT_EQ(job["metadata"]["generation"], 1);
  EXPECT_EQ(job["metadata"]["creationTimestamp"], FormatTime(clock_.WallNow()));
  EXPECT_EQ(job["metadata"]["uid"].get<std::string>().size(), 36u);
  EXPECT_EQ(Get("TrainingJob", "a"), job);
  EXPECT_NE(Create(MakeObject("TrainingJob", "b"))["metadata"]["uid"], job["metadata"]["uid"]);
}

TEST_F(ObjectStoreTest, NamesAreUniqueWithinAKind) {
  Create(MakeObject("TrainingJob", "a"));
  Create(MakeObject("Service", "a"));
  const auto again = store_->Create(MakeObject("TrainingJob", "a"));
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(again.error().message, "TrainingJob 'a' exists already");
  EXPECT_THAT(Names("TrainingJob"), ElementsAre("a"));
}

TEST_F(ObjectStoreTest, WhatBelongsToAJobIsFoundByItsLabel) {
  for (const char* job : {"a", "b"}) {
    OrderedJson pod = MakePod(std::string(job) + "-0-0", {"true"});
    pod["metadata"]["labels"] = {{names::kJobLabel, job}};
    Create(pod);
  }
  Create(MakePod("of-nobody", {"true"}));
  const auto pods = store_->ListOf("Pod", "b");
  ASSERT_TRUE(pods.has_value());
  ASSERT_EQ(pods->size(), 1u);
  EXPECT_EQ(pods->front()["metadata"]["name"], "b-0-0");
  EXPECT_TRUE(store_->ListOf("ConfigMap", "b")->empty());
}

TEST_F(ObjectStoreTest, WhatDoesNotExistIsNotFound) {
  EXPECT_EQ(store_->Get("Pod", "x").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store_->Delete("Pod", "x").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store_->Update(MakeObject("Pod", "x")).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store_->UpdateStatus(MakeObject("Pod", "x")).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(store_->Remove("Pod", "x").has_value());
  EXPECT_THAT(Names("Pod"), IsEmpty());
}

TEST_F(ObjectStoreTest, AnOldResourceVersionIsAConflict) {
  const OrderedJson first = Create(MakeObject("TrainingJob", "a"));
  OrderedJson mine = first, theirs = first;
  theirs["spec"]["replicas"] = 2;
  ASSERT_TRUE(store_->Update(theirs).has_value());

  mine["spec"]["replicas"] = 3;
  const auto update = store_->Update(mine);
  ASSERT_FALSE(update.has_value());
  EXPECT_EQ(update.error().code, ErrorCode::kConflict);
  EXPECT_EQ(store_->UpdateStatus(mine).error().code, ErrorCode::kConflict);
  EXPECT_EQ(Get("TrainingJob", "a")["spec"]["replicas"], 2);

  OrderedJson without = mine;
  without["metadata"].erase("resourceVersion");
  EXPECT_EQ(store_->Update(without).error().code, ErrorCode::kConflict);
}

TEST_F(ObjectStoreTest, OnlyTheSpecCountsGenerations) {
  OrderedJson job = Create(MakeObject("TrainingJob", "a"));
  job["metadata"]["labels"] = {{"x", "y"}};
  job = *store_->Update(job);
  EXPECT_EQ(job["metadata"]["generation"], 1);
  job["status"] = {{"phase", "Running"}};
  job = *store_->UpdateStatus(job);
  EXPECT_EQ(job["metadata"]["generation"], 1);
  job["spec"]["suspend"] = true;
  job = *store_->Update(job);
  EXPECT_EQ(job["metadata"]["generation"], 2);
}

TEST_F(ObjectStoreTest, SpecAndStatusDoNotTouchEachOther) {
  OrderedJson job = Create(MakeObject("TrainingJob", "a"));
  job["status"] = {{"phase", "Running"}};
  job["spec"]["replicas"] = 9;
  job["metadata"]["labels"] = {{"x", "y"}};
  job = *store_->UpdateStatus(job);
  EXPECT_FALSE(job["spec"].contains("replicas"));
  EXPECT_FALSE(job["metadata"].contains("labels"));
  EXPECT_EQ(job["status"]["phase"], "Running");

  job["status"]["phase"] = "Failed";
  job["spec"]["replicas"] = 2;
  job["metadata"]["uid"] = "forged";
  const OrderedJson updated = *store_->Update(job);
  EXPECT_EQ(updated["status"]["phase"], "Running");
  EXPECT_EQ(updated["spec"]["replicas"], 2);
  EXPECT_NE(updated["metadata"]["uid"], "forged");
}

TEST_F(ObjectStoreTest, EveryWriteHasAGreaterVersion) {
  std::set<int64_t> versions;
  OrderedJson job = Create(MakeObject("TrainingJob", "a"));
  for (int i = 0; i < 20; ++i) {
    const int64_t version = std::stoll(job["metadata"]["resourceVersion"].get<std::string>());
    EXPECT_TRUE(versions.empty() || version > *versions.rbegin());
    versions.insert(version);
    job["status"] = {{"step", i}};
    job = *store_->UpdateStatus(job);
  }
  EXPECT_EQ(versions.size(), 20u);
}

TEST_F(ObjectStoreTest, WhatAnObjectOwnsGoesWithIt) {
  const OrderedJson job = Create(MakeObject("TrainingJob", "a"));
  const OrderedJson other = Create(MakeObject("TrainingJob", "b"));
  const OrderedJson service = Create(OwnedBy(MakeObject("Service", "a"), job));
  Create(OwnedBy(MakeObject("Endpoints", "a"), service));  // owned at second hand
  Create(OwnedBy(MakePod("a-0-0", {"true"}), job));
  Create(OwnedBy(MakePod("b-0-0", {"true"}), other));

  ASSERT_TRUE(store_->Delete("TrainingJob", "a").has_value());

  EXPECT_THAT(Names("TrainingJob"), ElementsAre("b"));
  EXPECT_THAT(Names("Service"), IsEmpty());
  EXPECT_THAT(Names("Endpoints"), IsEmpty());
  EXPECT_THAT(Names("Pod"), ElementsAre("b-0-0"));
  Reopen();
  EXPECT_THAT(Names("Service"), IsEmpty());
  EXPECT_THAT(Names("Pod"), ElementsAre("b-0-0"));
}

TEST_F(ObjectStoreTest, ARunningPodOutlivesItsOwnerUntilItsProcessesHaveEnded) {
  const OrderedJson job = Create(MakeObject("TrainingJob", "a"));
  CreateRunningPod("a-0-0", job);
  ASSERT_TRUE(store_->Delete("TrainingJob", "a").has_value());
  EXPECT_THAT(Names("TrainingJob"), IsEmpty());
  EXPECT_TRUE(Get("Pod", "a-0-0")["metadata"].contains("deletionTimestamp"));
  ASSERT_TRUE(store_->Remove("Pod", "a-0-0").has_value());
  EXPECT_THAT(Names("Pod"), IsEmpty());
}

TEST_F(ObjectStoreTest, ARunningPodIsMarkedBeforeItGoes) {
  const OrderedJson job = Create(MakeObject("TrainingJob", "a"));
  CreateRunningPod("a-0-0", job);
  clock_.Advance(std::chrono::seconds(5));
  ASSERT_TRUE(store_->Delete("Pod", "a-0-0").has_value());
  const OrderedJson marked = Get("Pod", "a-0-0");
  EXPECT_EQ(marked["metadata"]["deletionTimestamp"], FormatTime(clock_.WallNow()));

  // Once more changes nothing.
  clock_.Advance(std::chrono::seconds(5));
  ASSERT_TRUE(store_->Delete("Pod", "a-0-0").has_value());
  EXPECT_EQ(Get("Pod", "a-0-0"), marked);
}

TEST_F(ObjectStoreTest, APodThatDoesNotRunGoesAtOnce) {
  OrderedJson failed = Create(MakePod("a-0-0", {"true"}));
  failed["status"] = {{"phase", "Failed"}};
  ASSERT_TRUE(store_->UpdateStatus(failed).has_value());
  Create(MakePod("a-1-0", {"true"}));  // pending
  ASSERT_TRUE(store_->Delete("Pod", "a-0-0").has_value());
  ASSERT_TRUE(store_->Delete("Pod", "a-1-0").has_value());
  EXPECT_THAT(Names("Pod"), IsEmpty());
}

TEST_F(ObjectStoreTest, EverythingIsThereAgainAfterReopening) {
  OrderedJson job = Create(MakeObject("TrainingJob", "a"));
  job["status"] = {{"attempt", {{"generation", 7}}}};
  job = *store_->UpdateStatus(job);
  Create(MakeObject("ConfigMap", "a-train"));

  Reopen();

  EXPECT_EQ(DumpJson(Get("TrainingJob", "a")), DumpJson(job));
  EXPECT_THAT(Names("ConfigMap"), ElementsAre("a-train"));
  // The newest version is known: an update with it works, and the next one is greater.
  job["status"]["attempt"]["generation"] = 8;
  const auto updated = store_->UpdateStatus(job);
  ASSERT_TRUE(updated.has_value()) << updated.error().message;
  EXPECT_GT(std::stoll((*updated)["metadata"]["resourceVersion"].get<std::string>()),
            std::stoll(job["metadata"]["resourceVersion"].get<std::string>()));
}

TEST_F(ObjectStoreTest, AFileThatIsNoObjectIsNamed) {
  Create(MakeObject("TrainingJob", "a"));
  const std::string path = directory_ / "TrainingJob/a.json";
  for (const char* text : {"", "{", "[]", "7", "{}", R"({"kind":"TrainingJob"})",
                           R"({"kind":"TrainingJob","metadata":{"name":"a"}})",
                           R"({"kind":"T","metadata":{"name":"a","resourceVersion":"x"}})"}) {
    std::ofstream(path) << text;
    const auto store = ObjectStore::Open(directory_.path(), clock_);
    ASSERT_FALSE(store.has_value()) << text;
    EXPECT_THAT(store.error().message, HasSubstr(path));
  }
}

TEST_F(ObjectStoreTest, WhatAnInterruptedWriteLeftIsNoObject) {
  Create(MakeObject("TrainingJob", "a"));
  std::ofstream(directory_ / "TrainingJob/a.json.tmp.123") << "{\"kind\": \"Trai";
  Reopen();
  EXPECT_THAT(Names("TrainingJob"), ElementsAre("a"));
}

TEST_F(ObjectStoreTest, SubscribersHearOfEveryChange) {
  std::vector<std::string> heard;
  store_->Subscribe([&](const std::string& kind, const std::string& name) {
    heard.push_back(kind + " " + name);
  });
  const OrderedJson job = Create(MakeObject("TrainingJob", "a"));
  OrderedJson pod = CreateRunningPod("a-0-0", job);
  EXPECT_THAT(heard, ElementsAre("TrainingJob a", "Pod a-0-0", "Pod a-0-0"));
  heard.clear();
  ASSERT_TRUE(store_->Delete("Pod", "a-0-0").has_value());
  ASSERT_TRUE(store_->Delete("Pod", "a-0-0").has_value());  // is marked already
  EXPECT_THAT(heard, ElementsAre("Pod a-0-0"));
  heard.clear();
  ASSERT_TRUE(store_->Remove("Pod", "a-0-0").has_value());
  Create(OwnedBy(MakeObject("Service", "a"), job));
  ASSERT_TRUE(store_->Delete("TrainingJob", "a").has_value());
  EXPECT_THAT(heard, UnorderedElementsAre("Pod a-0-0", "Service a", "TrainingJob a", "Service a"));
  heard.clear();
  EXPECT_FALSE(store_->Update(job).has_value());
  EXPECT_THAT(heard, IsEmpty());
}

TEST_F(ObjectStoreTest, ASubscriberMayUseTheStore) {
  OrderedJson seen;
  store_->Subscribe(
      [&](const std::string& kind, const std::string& name) { seen = *store_->Get(kind, name); });
  Create(MakeObject("TrainingJob", "a"));
  EXPECT_EQ(seen["metadata"]["name"], "a");
}

TEST_F(ObjectStoreTest, WritersThatRetryOnConflictLoseNothing) {
  Create(MakeObject("TrainingJob", "a"));
  constexpr int kThreads = 4, kEach = 25;
  std::atomic<int> told = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // Subscribing while others write is allowed.
      store_->Subscribe([&](const std::string&, const std::string&) { ++told; });
      for (int i = 0; i < kEach;) {
        OrderedJson job = *store_->Get("TrainingJob", "a");
        OrderedJson& count = job["status"]["count" + std::to_string(t)];
        count = count.is_null() ? 1 : count.get<int>() + 1;
        if (store_->UpdateStatus(job)) ++i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const OrderedJson status = Get("TrainingJob", "a")["status"];
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(status["count" + std::to_string(t)], kEach);
  EXPECT_GE(told, kEach);
}

}  // namespace
}  // namespace everstep
