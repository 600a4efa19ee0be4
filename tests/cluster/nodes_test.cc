// What the product's tests rely on: real nodes, a shared volume, names, Pod Security, a power cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/cluster/test_cluster.h"
#include "tests/support/await.h"

namespace everstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kNodes = 3;

class ClusterNodesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = std::make_unique<TestCluster>(kNodes);
    ASSERT_TRUE(cluster_->started().ok()) << cluster_->started().Text();
    const CommandResult loaded = cluster_->Load(BaseImageArchive());
    ASSERT_TRUE(loaded.ok()) << loaded.Text();
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  static const TestCluster& cluster() { return *cluster_; }
  static std::string PodOn(int node) { return "pod" + std::to_string(node); }
  static std::string NodeOf(const Json& pod) {
    return JsonValue<std::string>(pod["spec"], "nodeName", "");
  }

  inline static std::unique_ptr<TestCluster> cluster_;
};

TEST_F(ClusterNodesTest, AllAreReady) {
  for (int node = 0; node < kNodes; ++node) EXPECT_TRUE(cluster().IsReady(node)) << node;
  EXPECT_EQ(cluster().Get({"nodes"})["items"].size(), static_cast<size_t>(kNodes));
  EXPECT_THAT(cluster().Kubectl({"version"}).output, HasSubstr("Server Version: v1.34.4"));
}

TEST_F(ClusterNodesTest, PodsOfAllNodesShareAClaim) {
  const TestNamespace space(cluster());
  ASSERT_TRUE(space.Apply(DumpJson(ClaimManifest("shared"))).ok());
  for (int node = 0; node < kNodes; ++node) {
    const PodShape shape{.name = PodOn(node), .node = node, .claim = "shared"};
    const CommandResult applied = space.Apply(DumpJson(PodManifest(shape)));
    ASSERT_TRUE(applied.ok()) << applied.Text();
  }
  for (int node = 0; node < kNodes; ++node) {
    const std::string pod = PodOn(node);
    ASSERT_TRUE(space.AwaitPhase(pod, "Running")) << space.Kubectl({"describe", "pod", pod}).output;
    EXPECT_EQ(NodeOf(space.Get({"pod", pod})), "node" + std::to_string(node));
    const CommandResult written = space.Exec(pod, "id -u >/shared/$(hostname)");
    EXPECT_TRUE(written.ok()) << written.Text();
  }
  for (int node = 0; node < kNodes; ++node) {
    EXPECT_EQ(space.Exec(PodOn(node), "cat /shared/pod0 /shared/pod1 /shared/pod2").output,
              "65532\n65532\n65532\n");
  }
}

TEST_F(ClusterNodesTest, NamesOfAHeadlessServiceResolve) {
  const TestNamespace space(cluster());
  const Json service = {{"apiVersion", "v1"},
                        {"kind", "Service"},
                        {"metadata", {{"name", "peers"}}},
                        {"spec", {{"clusterIP", "None"}, {"selector", {{"app", "pod1"}}}}}};
  ASSERT_TRUE(space.Apply(DumpJson(service)).ok());
  for (const int node : {0, 1}) {
    Json pod = PodManifest({.name = PodOn(node), .node = node});
    pod["spec"]["hostname"] = PodOn(node);
    pod["spec"]["subdomain"] = "peers";
    ASSERT_TRUE(space.Apply(DumpJson(pod)).ok());
  }
  ASSERT_TRUE(space.AwaitPhase("pod0", "Running"));
  ASSERT_TRUE(space.AwaitPhase("pod1", "Running"));
  const std::string address = space.Get({"pod", "pod1"})["status"]["podIP"];
  std::string found;
  EXPECT_TRUE(AwaitTrue([&] {
    found = space.Exec("pod0", "getent ahostsv4 pod1.peers").output;
    return found.starts_with(address + " ");
  })) << "found: "
      << found << ", wanted: " << address;
}

// The pod reaches the API server as the operator's will: by the service's address.
TEST_F(ClusterNodesTest, PodsReachTheApiServer) {
  const TestNamespace space(cluster());
  ASSERT_TRUE(space.Apply(DumpJson(PodManifest({.name = "client"}))).ok());
  ASSERT_TRUE(space.AwaitPhase("client", "Running"));
  const CommandResult connected = space.Exec(
      "client",
      "timeout 20 bash -c 'exec 3<>/dev/tcp/kubernetes.default.svc/443 && echo connected'");
  EXPECT_EQ(connected.output, "connected\n") << connected.Text();
}

TEST_F(ClusterNodesTest, RestrictedNamespacesRefuseRoot) {
  const TestNamespace space(cluster());
  const CommandResult refused =
      space.Apply(DumpJson(PodManifest({.name = "root", .as_root = true})));
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(refused.errors, HasSubstr("violates PodSecurity \"restricted"));
  EXPECT_TRUE(space.Apply(DumpJson(PodManifest({.name = "other"}))).ok());
}

// A deployment of one pod that prefers node 2 and leaves a lost node after 5 s.
Json Wanderer() {
  Json pod = PodManifest({.name = "wanderer"});
  Json& spec = pod["spec"];
  spec["restartPolicy"] = "Always";
  spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
      Json::array({{{"weight", 100},
                    {"preference",
                     {{"matchExpressions", Json::array({{{"key", "kubernetes.io/hostname"},
                                                         {"operator", "In"},
                                                         {"values", {"node2"}}}})}}}}});
  for (const char* taint : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    spec["tolerations"].push_back({{"key", taint},
                                   {"operator", "Exists"},
                                   {"effect", "NoExecute"},
                                   {"tolerationSeconds", 5}});
  }
  const Json labels = {{"app", "wanderer"}};
  return {{"apiVersion", "apps/v1"},
          {"kind", "Deployment"},
          {"metadata", {{"name", "wanderer"}}},
          {"spec",
           {{"replicas", 1},
            {"selector", {{"matchLabels", labels}}},
            {"template", {{"metadata", {{"labels", labels}}}, {"spec", spec}}}}}};
}

TEST_F(ClusterNodesTest, APodMovesAwayFromALostNode) {
  const TestNamespace space(cluster());
  ASSERT_TRUE(space.Apply(DumpJson(Wanderer())).ok());
  const auto runs = [&](bool on_node2) {
    const Json pods = space.Get({"pods"});
    for (const Json& pod : pods["items"]) {
      if (pod["metadata"].contains("deletionTimestamp")) continue;
      if (pod["status"]["phase"] != "Running") continue;
      if ((NodeOf(pod) == "node2") == on_node2) return true;
    }
    return false;
  };
  ASSERT_TRUE(AwaitTrue([&] { return runs(true); })) << space.Kubectl({"describe", "all"}).output;

  const CommandResult killed = cluster().KillNode(2);
  ASSERT_TRUE(killed.ok()) << killed.Text();
  EXPECT_TRUE(AwaitTrue([&] { return !cluster().IsReady(2); }));
  EXPECT_TRUE(AwaitTrue([&] { return runs(false); }));
  EXPECT_TRUE(cluster().IsReady(0));
  EXPECT_FALSE(cluster().KillNode(2).ok()) << "it is off already";

  const CommandResult started = cluster().StartNode(2);
  ASSERT_TRUE(started.ok()) << started.Text();
  EXPECT_TRUE(AwaitTrue([&] { return cluster().IsReady(2); }));
  ASSERT_TRUE(space.Apply(DumpJson(PodManifest({.name = "again", .node = 2}))).ok());
  EXPECT_TRUE(space.AwaitPhase("again", "Running"));
}

}  // namespace
}  // namespace everstep::testing
