// The operator with the rights that the chart gives it, and no more, against a real API server:
// what it lacks would show as an error here and nowhere else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/json.h"
#include "tests/manifests/api_server.h"
#include "tests/support/await.h"

namespace everstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kJob[] = R"(
apiVersion: everstep.dev/v1alpha1
kind: TrainingJob
metadata: {name: job, namespace: team}
spec:
  replicas: 2
  train: {stage: sft}
  checkpoint: {claimTemplate: {storage: 1Gi}}
)";

class OperatorRightsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string missing = ApiServer::Missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
    server_ = std::make_unique<ApiServer>();
    ASSERT_TRUE(server_->ready()) << server_->Logs();
    ASSERT_TRUE(server_->Kubectl({"create", "namespace", "team"}).ok());
    std::vector<std::string> install{"install", "everstep",
                                     std::string(EVERSTEP_SOURCE_DIR) + "/helm/everstep",
                                     "--namespace=everstep-system", "--create-namespace"};
    if (!GetParam().empty()) install.push_back("--set-json=watchNamespaces=" + GetParam());
    const auto installed = server_->Helm(install);
    ASSERT_TRUE(installed.ok()) << installed.Text();
    ASSERT_TRUE(server_
                    ->Kubectl({"wait", "--for=condition=Established", "--timeout=60s",
                               "crd/trainingjobs.everstep.dev"})
                    .ok());
    StartOperator();
  }

  // As the chart's service account.
  void StartOperator() {
    const auto token =
        server_->Kubectl({"create", "token", "everstep-operator", "--namespace=everstep-system"});
    ASSERT_TRUE(token.ok()) << token.Text();
    const Json config = {
        {"apiVersion", "v1"},
        {"kind", "Config"},
        {"current-context", "c"},
        {"contexts", {{{"name", "c"}, {"context", {{"cluster", "c"}, {"user", "u"}}}}}},
        {"clusters",
         {{{"name", "c"},
           {"cluster", {{"server", server_->url()}, {"insecure-skip-tls-verify", true}}}}}},
        {"users",
         {{{"name", "u"},
           {"user", {{"token", token.output.substr(0, token.output.find('\n'))}}}}}}};
    std::ofstream(server_->File("operator.kubeconfig")) << config.dump();
    std::vector<std::string> command{std::string(EVERSTEP_BINARY_DIR) + "/bin/everstep-operator",
                                     "--kubeconfig=" + server_->File("operator.kubeconfig"),
                                     "--system-namespace=everstep-system",
                                     "--rendezvous-port=0",
                                     "--health-port=0",
                                     "--leader-elect",
                                     "--worker-image=worker"};
    if (!GetParam().empty()) command.push_back("--namespace=team");
    server_->Start("everstep-operator", command);
  }

  std::string Get(std::vector<std::string> what, const std::string& path) {
    what.insert(what.begin(), "get");
    what.insert(what.end(), {"--namespace=team", "-o=jsonpath=" + path});
    return server_->Kubectl(what).output;
  }

  std::unique_ptr<ApiServer> server_;
};

TEST_P(OperatorRightsTest, AreEnoughForAJobsWholeLife) {
  const auto created = server_->Kubectl({"create", "-f", "-"}, kJob);
  ASSERT_TRUE(created.ok()) << created.Text();
  const bool made =
      AwaitTrue([&] { return Get({"pods"}, "{.items[*].metadata.name}") == "job-0-0 job-1-0"; });
  EXPECT_TRUE(made) << server_->Logs();
  for (const char* kind : {"service/job", "configmap/job-train", "networkpolicy/job", "pvc/job"}) {
    EXPECT_NE(Get({kind}, "{.metadata.uid}"), "") << kind;
  }
  EXPECT_EQ(Get({"tj", "job"}, "{.status.phase} {.status.observedGeneration}"), "Pending 1");
  // A pod that is deleted by somebody gets a successor.
  ASSERT_TRUE(server_->Kubectl({"delete", "pod", "job-1-0", "--namespace=team", "--now"}).ok());
  EXPECT_TRUE(AwaitTrue([&] {
    return Get({"pods"}, "{.items[*].metadata.name}") == "job-0-0 job-1-1";
  })) << server_->Logs();
  // Suspended, it has none.
  ASSERT_TRUE(server_
                  ->Kubectl({"patch", "tj", "job", "--namespace=team", "--type=merge",
                             R"(--patch={"spec":{"suspend":true}})"})
                  .ok());
  EXPECT_TRUE(AwaitTrue([&] { return Get({"pods"}, "{.items[*].metadata.name}").empty(); }))
      << server_->Logs();
  const auto log = ReadFile(server_->File("everstep-operator.log"));
  EXPECT_THAT(log.value_or(""), Not(HasSubstr("forbidden"))) << server_->Logs();
}

INSTANTIATE_TEST_SUITE_P(Watching, OperatorRightsTest, ::testing::Values("", R"(["team"])"),
                         [](const auto& info) {
                           return info.param.empty() ? "AllNamespaces" : "OneNamespace";
                         });

}  // namespace
}  // namespace everstep
