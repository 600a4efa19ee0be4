#include "operator/kube/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_dir.h"

namespace everstep::kube {
namespace {

using testing::HasSubstr;

class CredentialsTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  std::string Kubeconfig(const std::string& cluster, const std::string& user) {
    return Write("config",
                 "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
                 "contexts: [{name: here, context: {cluster: c, user: u, namespace: team}}]\n"
                 "clusters: [{name: c, cluster: " +
                     cluster + "}]\nusers: [{name: u, user: " + user + "}]\n");
  }
  std::string ErrorOf(const std::string& cluster, const std::string& user) {
    const auto access = AccessFromKubeconfig(Kubeconfig(cluster, user));
    return access ? "no error" : access.error().message;
  }

  TempDir directory_;
};

TEST_F(CredentialsTest, APodsOwn) {
  Write("namespace", "team\n");
  const auto access =
      AccessFromPod({{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}, {"KUBERNETES_SERVICE_PORT", "443"}},
                    directory_.path());
  ASSERT_TRUE(access.has_value()) << access.error().message;
  EXPECT_EQ(access->server, "https://10.96.0.1:443");
  EXPECT_EQ(access->namespace_name, "team");
  EXPECT_EQ(access->token_file, directory_.path() + "/token");
  EXPECT_EQ(access->authority_file, directory_.path() + "/ca.crt");
  const auto v6 = AccessFromPod(
      {{"KUBERNETES_SERVICE_HOST", "fd00::1"}, {"KUBERNETES_SERVICE_PORT", "443"}}, "/none");
  EXPECT_EQ(v6->server, "https://kubernetes.default.svc:443");
  EXPECT_EQ(AccessFromPod({}).error().code, ErrorCode::kNotFound);
}

TEST_F(CredentialsTest, AKubeconfigWithFilesBesideIt) {
  const auto access = AccessFromKubeconfig(
      Kubeconfig("{server: \"https://host:6443\", certificate-authority: pki/ca.crt}",
                 "{client-certificate: /abs/a.crt, client-key: a.key}"));
  ASSERT_TRUE(access.has_value()) << access.error().message;
  EXPECT_EQ(access->server, "https://host:6443");
  EXPECT_EQ(access->namespace_name, "team");
  EXPECT_EQ(access->authority_file, directory_.path() + "/pki/ca.crt");
  EXPECT_EQ(access->client_certificate_file, "/abs/a.crt");
  EXPECT_EQ(access->client_key_file, directory_.path() + "/a.key");
}

TEST_F(CredentialsTest, AKubeconfigWithEverythingInIt) {
  const auto access = AccessFromKubeconfig(Kubeconfig(
      "{server: \"https://host\", certificate-authority-data: UEVNIQ==}", "{token: secret}"));
  ASSERT_TRUE(access.has_value()) << access.error().message;
  EXPECT_EQ(access->authority, "PEM!");
  EXPECT_EQ(access->token, "secret");
}

TEST_F(CredentialsTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(ErrorOf("{}", "{}"), HasSubstr("config: clusters[c].server: is missing"));
  EXPECT_THAT(ErrorOf("{server: \"https://h\"}", "{exec: {command: aws}}"),
              HasSubstr("config: users[u].exec: credentials of other programs"));
  EXPECT_THAT(ErrorOf("{server: \"https://h\", certificate-authority-data: \"?\"}", "{}"),
              HasSubstr("config: certificate-authority-data: is not base64"));
  const std::string path = Kubeconfig("{server: \"https://h\"}", "{}");
  EXPECT_THAT(AccessFromKubeconfig(path, "there").error().message,
              HasSubstr("config: contexts: has no 'there'"));
  EXPECT_THAT(AccessFromKubeconfig(Write("text", "hello")).error().message,
              HasSubstr("text:1: is not a mapping"));
  EXPECT_THAT(AccessFromKubeconfig(Write("bare", "kind: Config\n")).error().message,
              HasSubstr("bare: current-context: is missing"));
  EXPECT_FALSE(AccessFromKubeconfig(directory_.path() + "/none").has_value());
}

TEST_F(CredentialsTest, ATokenFileIsReadAgainAfterAMinuteAndAfterARefusal) {
  ManualClock clock;
  TokenSource token({.token_file = Write("token", "one\n")}, clock);
  EXPECT_EQ(*token.Get(), "one");
  Write("token", "two");
  clock.Advance(std::chrono::seconds(59));
  EXPECT_EQ(*token.Get(), "one");
  clock.Advance(std::chrono::seconds(1));
  EXPECT_EQ(*token.Get(), "two");
  Write("token", "three");
  token.Drop();
  EXPECT_EQ(*token.Get(), "three");
}

TEST_F(CredentialsTest, ATokenThatCannotBeReadIsNoToken) {
  ManualClock clock;
  TokenSource none({}, clock);
  EXPECT_EQ(*none.Get(), "");
  TokenSource missing({.token_file = directory_.path() + "/none"}, clock);
  EXPECT_EQ(missing.Get().error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace everstep::kube
