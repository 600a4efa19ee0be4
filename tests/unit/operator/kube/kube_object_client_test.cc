// The cluster as the shell sees it, over real sockets.
#include "operator/kube/kube_object_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "operator/kube/transport_cpprest.h"
#include "tests/support/await.h"
#include "tests/support/fake_api_server.h"

namespace everstep::kube {
namespace {

using testing::ElementsAre;
using Answer = FakeApiServer::Answer;
using Seen = FakeApiServer::Seen;

constexpr char kPodsPath[] = "/api/v1/namespaces/team/pods/";
constexpr char kJobsPath[] = "/apis/everstep.dev/v1alpha1/namespaces/team/trainingjobs/";

OrderedJson Pod(const std::string& name, const std::string& job = "job") {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata",
           {{"name", name}, {"namespace", "team"}, {"labels", {{"everstep.dev/job", job}}}}}};
}
OrderedJson Job(const std::string& name) {
  return {{"apiVersion", "everstep.dev/v1alpha1"},
          {"kind", "TrainingJob"},
          {"metadata", {{"name", name}, {"namespace", "team"}}},
          {"spec", {{"replicas", 1}}}};
}

class KubeObjectClientTest : public testing::Test {
 protected:
  ~KubeObjectClientTest() override { objects_.reset(); }
  void Connect(const std::vector<std::string>& namespaces = {}) {
    transport_ = std::move(*MakeTransport({.server = server_.url()}, {}, clock_));
    client_ = std::make_unique<ApiClient>(*transport_);
    objects_ = std::make_unique<KubeObjectClient>(*client_, namespaces, clock_);
    objects_->Subscribe([this](const std::string& kind, const std::string& key) {
      const std::lock_guard lock(mutex_);
      told_.insert(kind + " " + key);
    });
    ASSERT_TRUE(AwaitTrue([&] { return objects_->synced() && server_.watches() == 2; }));
  }
  bool Knows(const std::string& kind, const std::string& key) {
    return objects_->Get(kind, key).has_value();
  }
  bool WasTold(const std::string& what) {
    const std::lock_guard lock(mutex_);
    return told_.contains(what);
  }
  bool AwaitPod(const std::string& name, bool known = true) {
    return AwaitTrue([&] { return Knows("Pod", "team/" + name) == known; });
  }

  SystemClock clock_;
  FakeApiServer server_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<ApiClient> client_;
  std::unique_ptr<KubeObjectClient> objects_;
  std::mutex mutex_;
  std::set<std::string> told_;
};

TEST_F(KubeObjectClientTest, WhatWasThereAndWhatComes) {
  server_.Put(kJobsPath + std::string("job"), Job("job"));
  server_.Put(kPodsPath + std::string("a"), Pod("a"));
  Connect();
  EXPECT_TRUE(Knows("TrainingJob", "team/job"));
  EXPECT_TRUE(Knows("Pod", "team/a"));
  server_.Put(kPodsPath + std::string("b"), Pod("b"));
  ASSERT_TRUE(AwaitPod("b"));
  EXPECT_TRUE(AwaitTrue([&] { return WasTold("Pod team/b"); }));
  EXPECT_EQ(objects_->ListOf("Pod", "team/job")->size(), 2u);
  server_.Remove(kPodsPath + std::string("a"));
  EXPECT_TRUE(AwaitPod("a", false));
}

TEST_F(KubeObjectClientTest, OnesOwnWritesAreKnownAtOnce) {
  Connect();
  ASSERT_TRUE(objects_->Create(Job("job")).has_value());
  ASSERT_TRUE(Knows("TrainingJob", "team/job"));
  OrderedJson job = *objects_->Get("TrainingJob", "team/job");
  job["status"] = {{"phase", "Running"}};
  ASSERT_TRUE(objects_->UpdateStatus(job).has_value());
  EXPECT_EQ((*objects_->Get("TrainingJob", "team/job"))["status"]["phase"], "Running");
}

TEST_F(KubeObjectClientTest, AfterAConflictTheNewestIsKnown) {
  Connect();
  ASSERT_TRUE(objects_->Create(Job("job")).has_value());
  OrderedJson stale = *objects_->Get("TrainingJob", "team/job");
  // The watch is held back: only the conflict can bring the news.
  server_.SetIntercept([](const Seen& seen) -> std::optional<Answer> {
    if (seen.query.find("watch=true") == std::string::npos) return std::nullopt;
    return Answer{.status = 500, .body = "{}"};
  });
  server_.EndWatches();
  ASSERT_TRUE(AwaitTrue([&] { return server_.watches() == 0; }));
  OrderedJson newer = Job("job");
  newer["spec"]["replicas"] = 2;
  server_.Put(kJobsPath + std::string("job"), newer);
  stale["status"] = {{"phase", "Running"}};
  EXPECT_EQ(objects_->UpdateStatus(stale).error().code, ErrorCode::kConflict);
  const OrderedJson known = *objects_->Get("TrainingJob", "team/job");
  EXPECT_EQ(known["spec"]["replicas"], 2);
}

TEST_F(KubeObjectClientTest, OnlyThePodThatIsMeantIsDeleted) {
  server_.Put(kPodsPath + std::string("a"), Pod("a"));
  Connect();
  ASSERT_TRUE(AwaitPod("a"));
  ASSERT_TRUE(objects_->Delete("Pod", "team/a").has_value());
  const auto seen = server_.seen();
  const auto erase = std::ranges::find(seen, "DELETE", &Seen::method);
  ASSERT_NE(erase, seen.end());
  const auto body = ParseJson(erase->body, "body");
  EXPECT_NE(JsonValue<std::string>((*body)["preconditions"], "uid", ""), "");
  EXPECT_EQ((*body)["propagationPolicy"], "Background");
  EXPECT_EQ(objects_->Delete("Pod", "team/a").error().code, ErrorCode::kNotFound);
}

TEST_F(KubeObjectClientTest, OtherKindsAreReadFromTheServer) {
  server_.Put("/api/v1/namespaces/team/services/job",
              {{"kind", "Service"}, {"metadata", {{"name", "job"}, {"namespace", "team"}}}});
  Connect();
  EXPECT_TRUE(Knows("Service", "team/job"));
  EXPECT_EQ(objects_->Get("Service", "team/none").error().code, ErrorCode::kNotFound);
}

TEST_F(KubeObjectClientTest, OneNamespaceIsAskedForAlone) {
  server_.Put("/api/v1/namespaces/other/pods/x",
              {{"kind", "Pod"},
               {"metadata",
                {{"name", "x"}, {"namespace", "other"}, {"labels", {{"everstep.dev/job", "j"}}}}}});
  server_.Put(kPodsPath + std::string("a"), Pod("a"));
  Connect({"team"});
  EXPECT_TRUE(Knows("Pod", "team/a"));
  EXPECT_FALSE(Knows("Pod", "other/x"));
}

// ---- Whatever the server does, in the end everything is known ----

TEST_F(KubeObjectClientTest, AWatchThatEndsIsContinued) {
  Connect();
  for (int round = 0; round < 3; ++round) {
    server_.EndWatches();
    server_.Put(kPodsPath + std::to_string(round), Pod(std::to_string(round)));
    ASSERT_TRUE(AwaitPod(std::to_string(round))) << round;
  }
}

TEST_F(KubeObjectClientTest, AWatchThatIsCutInALineIsContinued) {
  Connect();
  server_.CutWatches();
  server_.Put(kPodsPath + std::string("a"), Pod("a"));
  EXPECT_TRUE(AwaitPod("a"));
}

TEST_F(KubeObjectClientTest, WhatWentWhileHistoryWasLostIsGone) {
  server_.Put(kPodsPath + std::string("a"), Pod("a"));
  Connect();
  server_.SetIntercept([](const Seen& seen) -> std::optional<Answer> {
    if (seen.query.find("watch=true") == std::string::npos) return std::nullopt;
    return Answer{.status = 503, .body = "{}"};
  });
  server_.EndWatches();
  ASSERT_TRUE(AwaitTrue([&] { return server_.watches() == 0; }));
  server_.Remove(kPodsPath + std::string("a"));
  server_.Put(kPodsPath + std::string("b"), Pod("b"));
  server_.ForgetHistory();
  server_.SetIntercept(nullptr);
  EXPECT_TRUE(AwaitPod("b"));
  EXPECT_TRUE(AwaitPod("a", false));
}

TEST_F(KubeObjectClientTest, AnErrorEventInTheStreamIsListedAnew) {
  Connect();
  server_.SendRaw(R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}})"
                  "\n");
  server_.Put(kPodsPath + std::string("a"), Pod("a"));
  EXPECT_TRUE(AwaitPod("a"));
}

TEST_F(KubeObjectClientTest, AnOverloadedServerIsWaitedFor) {
  std::atomic<int> refusals = 4;
  server_.SetIntercept([&](const Seen&) -> std::optional<Answer> {
    if (refusals-- <= 0) return std::nullopt;
    return Answer{.status = 429, .body = "{}"};
  });
  server_.Put(kPodsPath + std::string("a"), Pod("a"));
  Connect();
  EXPECT_TRUE(Knows("Pod", "team/a"));
}

}  // namespace
}  // namespace everstep::kube
