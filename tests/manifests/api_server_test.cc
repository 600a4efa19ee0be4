// What a real API server makes of the CustomResourceDefinition, of manifests, and of the chart's
// objects.
#include "tests/manifests/api_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "operator/api/crd.h"
#include "tests/support/manifest_table.h"

namespace everstep {
namespace {

using ::testing::HasSubstr;
using ::testing::TestWithParam;
using ::testing::ValuesIn;

// One server for all tests of the program, with the definition in it.
class ManifestsEnvironment : public ::testing::Environment {
 public:
  static ApiServer& server() { return *instance_->server_; }

  void SetUp() override {
    instance_ = this;
    if (!ApiServer::Missing().empty()) return;
    server_ = std::make_unique<ApiServer>();
    ASSERT_TRUE(server_->ready()) << server_->Logs();
    // Not applied: that would need an annotation as long as the definition.
    const auto created = server_->Kubectl({"create", "-f", "-"}, DumpJson(BuildCrd()));
    ASSERT_TRUE(created.ok()) << created.Text();
    const auto established = server_->Kubectl(
        {"wait", "--for=condition=Established", "--timeout=60s", "crd/trainingjobs.everstep.dev"});
    ASSERT_TRUE(established.ok()) << established.Text();
  }
  void TearDown() override { server_.reset(); }

 private:
  static inline ManifestsEnvironment* instance_ = nullptr;
  std::unique_ptr<ApiServer> server_;
};

const auto* const kEnvironment = ::testing::AddGlobalTestEnvironment(new ManifestsEnvironment);

class ApiServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = ApiServer::Missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  void TearDown() override {
    if (ApiServer::Missing().empty()) Kubectl({"delete", "tj", "--all"});
  }
  static testing::CommandResult Kubectl(std::vector<std::string> arguments,
                                        const std::string& input = "") {
    return ManifestsEnvironment::server().Kubectl(std::move(arguments), input);
  }
  // Creates the row's manifest, or changes what was there before into it.
  static testing::CommandResult Submit(const ManifestRow& row) {
    if (!row.before) return Kubectl({"create", "-f", "-"}, DumpJson(row.manifest));
    const auto before = Kubectl({"create", "-f", "-"}, DumpJson(*row.before));
    EXPECT_TRUE(before.ok()) << before.Text();
    return Kubectl({"replace", "-f", "-"}, DumpJson(row.manifest));
  }
};

class RefusedTest : public ApiServerTest, public ::testing::WithParamInterface<ManifestRow> {};

TEST_P(RefusedTest, WithTheFieldAndTheRemedy) {
  const auto submitted = Submit(GetParam());
  EXPECT_FALSE(submitted.ok()) << DumpJson(GetParam().manifest);
  EXPECT_NE(GetParam().message, "");
  EXPECT_THAT(submitted.errors, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(Manifest, RefusedTest, ValuesIn(ReadManifestTable("refused")), TestNameOf);

class AcceptedTest : public ApiServerTest, public ::testing::WithParamInterface<ManifestRow> {};

TEST_P(AcceptedTest, IsStored) {
  const auto submitted = Submit(GetParam());
  EXPECT_TRUE(submitted.ok()) << submitted.Text();
}

INSTANTIATE_TEST_SUITE_P(Manifest, AcceptedTest, ValuesIn(ReadManifestTable("accepted")),
                         TestNameOf);

constexpr char kJob[] =
    "apiVersion: everstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: job}\n"
    "spec: {replicas: 4, train: {stage: sft, nested: {list: [1, {a: b}]}}}\n";

TEST_F(ApiServerTest, TheTrainingFileIsStoredAsItIs) {
  ASSERT_TRUE(Kubectl({"create", "-f", "-"}, kJob).ok());
  const auto stored = Kubectl({"get", "tj", "job", "-o", "jsonpath={.spec.train}"});
  EXPECT_EQ(stored.output, R"({"nested":{"list":[1,{"a":"b"}]},"stage":"sft"})");
}

TEST_F(ApiServerTest, ShowsWhatTheStatusSays) {
  ASSERT_TRUE(Kubectl({"create", "-f", "-"}, kJob).ok());
  const std::string status =
      R"({"status":{"phase":"Running","ready":"3/4","message":"because",)"
      R"("selector":"everstep.dev/job=job","replicaStatuses":{"running":3,"desired":4},)"
      R"("progress":{"step":12,"eta":"0:01:00"},"checkpoint":{"step":10},)"
      R"("restarts":{"total":1,"chargedAt":[5]},"goodput":{"ratio":"0.970"},)"
      R"("attempt":{"generation":3,"worldSize":4},"logicalWorld":4}})";
  const auto patched =
      Kubectl({"patch", "tj", "job", "--subresource=status", "--type=merge", "--patch=" + status});
  ASSERT_TRUE(patched.ok()) << patched.Text();
  const auto words = [](const std::string& line) {
    std::istringstream stream(line);
    return std::vector<std::string>(std::istream_iterator<std::string>(stream), {});
  };
  std::vector<std::string> row = words(Kubectl({"get", "tj", "--no-headers"}).output);
  ASSERT_FALSE(row.empty());
  row.pop_back();  // the age
  EXPECT_EQ(row, (std::vector<std::string>{"job", "Running", "3/4", "12", "10", "1", "0.970"}));
  row = words(Kubectl({"get", "tj", "--no-headers", "-o", "wide"}).output);
  row.pop_back();
  EXPECT_EQ(row, (std::vector<std::string>{"job", "Running", "3/4", "12", "10", "1", "0.970", "4",
                                           "3", "0:01:00", "because"}));
  // What the definition does not name is kept.
  EXPECT_EQ(Kubectl({"get", "tj", "job", "-o", "jsonpath={.status.restarts.chargedAt}"}).output,
            "[5]");
  EXPECT_THAT(Kubectl({"get", "all"}).output, HasSubstr("trainingjob.everstep.dev/job"));
}

TEST_F(ApiServerTest, AJobThatNobodyHasSeenSaysSo) {
  ASSERT_TRUE(Kubectl({"create", "-f", "-"}, kJob).ok());
  EXPECT_EQ(Kubectl({"get", "tj", "job", "-o", "jsonpath={.status.observedGeneration}"}).output,
            "-1");
}

TEST_F(ApiServerTest, IsScaled) {
  ASSERT_TRUE(Kubectl({"create", "-f", "-"}, kJob).ok());
  const auto scaled = Kubectl({"scale", "tj", "job", "--replicas=2"});
  EXPECT_TRUE(scaled.ok()) << scaled.Text();
  EXPECT_EQ(Kubectl({"get", "tj", "job", "-o", "jsonpath={.spec.replicas}"}).output, "2");
}

TEST_F(ApiServerTest, ExplainsEveryField) {
  const auto explained = Kubectl({"explain", "tj.spec.elastic.onShrink"});
  EXPECT_THAT(explained.output, HasSubstr("KeepGlobalBatch"));
  EXPECT_THAT(explained.output, HasSubstr("DESCRIPTION"));
}

TEST_F(ApiServerTest, TheExamplesAreAccepted) {
  const auto tried = Kubectl(
      {"create", "--dry-run=server", "-f", std::string(EVERSTEP_SOURCE_DIR) + "/examples/k8s"});
  EXPECT_TRUE(tried.ok()) << tried.Text();
  EXPECT_THAT(tried.output, HasSubstr("trainingjob.everstep.dev/tiny-sft created"));
  EXPECT_THAT(tried.output, HasSubstr("trainingjob.everstep.dev/qwen-sft created"));
}

// The plain manifest, as a person applies it. The definition that is there is taken over.
TEST_F(ApiServerTest, TheInstallManifestIsAccepted) {
  const auto applied = Kubectl({"apply", "--server-side", "--force-conflicts", "-f",
                                std::string(EVERSTEP_SOURCE_DIR) + "/dist/install.yaml"});
  EXPECT_TRUE(applied.ok()) << applied.Text();
  EXPECT_THAT(applied.output, HasSubstr("deployment.apps/everstep-operator serverside-applied"));
}

TEST_F(ApiServerTest, TheOperatorMayDoItsWorkAndNoMore) {
  ASSERT_TRUE(Kubectl({"apply", "--server-side", "--force-conflicts", "-f",
                       std::string(EVERSTEP_SOURCE_DIR) + "/dist/install.yaml"})
                  .ok());
  const auto may = [](std::vector<std::string> what) {
    what.insert(what.begin(), {"auth", "can-i"});
    what.push_back("--as=system:serviceaccount:everstep-system:everstep-operator");
    return Kubectl(what).output == "yes\n";
  };
  for (const char* verb : {"get", "list", "watch", "update", "delete"}) {
    EXPECT_TRUE(may({verb, "trainingjobs.everstep.dev", "-n", "team"})) << verb;
  }
  EXPECT_TRUE(may({"update", "trainingjobs.everstep.dev", "--subresource=status", "-n", "team"}));
  for (const char* verb : {"create", "get", "list", "watch", "delete"}) {
    EXPECT_TRUE(may({verb, "pods", "-n", "team"})) << verb;
  }
  for (const char* kind :
       {"services", "configmaps", "persistentvolumeclaims", "networkpolicies.networking.k8s.io"}) {
    EXPECT_TRUE(may({"create", kind, "-n", "team"})) << kind;
    EXPECT_TRUE(may({"get", kind, "-n", "team"})) << kind;
    EXPECT_FALSE(may({"delete", kind, "-n", "team"})) << kind;
  }
  EXPECT_TRUE(may({"create", "tokenreviews.authentication.k8s.io"}));
  EXPECT_TRUE(may({"create", "events.events.k8s.io", "-n", "team"}));
  EXPECT_TRUE(
      may({"update", "leases.coordination.k8s.io/everstep-operator", "-n", "everstep-system"}));
  EXPECT_TRUE(may({"get", "secrets/everstep-rendezvous-ca", "-n", "everstep-system"}));
  EXPECT_FALSE(may({"get", "secrets/other", "-n", "everstep-system"}));
  EXPECT_FALSE(may({"list", "secrets", "-n", "everstep-system"}));
  EXPECT_FALSE(may({"get", "secrets/everstep-rendezvous-ca", "-n", "team"}));
  EXPECT_FALSE(may({"create", "pods", "--subresource=exec", "-n", "team"}));
  EXPECT_FALSE(may({"create", "serviceaccounts", "--subresource=token", "-n", "team"}));
  EXPECT_FALSE(may({"create", "trainingjobs.everstep.dev", "-n", "team"}));
}

// On a server of its own: helm takes over nothing that others have created.
TEST_F(ApiServerTest, HelmInstallsUpgradesAndLeavesTheJobs) {
  const ApiServer server;
  ASSERT_TRUE(server.ready()) << server.Logs();
  const std::string chart = std::string(EVERSTEP_SOURCE_DIR) + "/helm/everstep";
  const auto installed = server.Helm(
      {"install", "everstep", chart, "--namespace=everstep-system", "--create-namespace"});
  ASSERT_TRUE(installed.ok()) << installed.Text();
  EXPECT_THAT(installed.output, HasSubstr("runs TrainingJobs in every namespace"));
  const auto established = server.Kubectl(
      {"wait", "--for=condition=Established", "--timeout=60s", "crd/trainingjobs.everstep.dev"});
  ASSERT_TRUE(established.ok()) << established.Text();
  ASSERT_TRUE(server.Kubectl({"create", "-f", "-"}, kJob).ok());
  const auto upgraded = server.Helm(
      {"upgrade", "everstep", chart, "--namespace=everstep-system", "--set=replicas=3"});
  EXPECT_TRUE(upgraded.ok()) << upgraded.Text();
  const std::vector<std::string> deployment{"get", "deployment", "everstep-operator",
                                            "--namespace=everstep-system",
                                            "-o=jsonpath={.spec.replicas}"};
  EXPECT_EQ(server.Kubectl(deployment).output, "3");
  const auto gone = server.Helm({"uninstall", "everstep", "--namespace=everstep-system"});
  EXPECT_TRUE(gone.ok()) << gone.Text();
  EXPECT_FALSE(server.Kubectl(deployment).ok());
  EXPECT_TRUE(server.Kubectl({"get", "tj", "job"}).ok());
}

}  // namespace
}  // namespace everstep
