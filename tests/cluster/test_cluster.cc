#include "tests/cluster/test_cluster.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "common/check.h"
#include "tests/support/await.h"
#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"

namespace everstep::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kKubernetes[] = "kubernetes-1.34.4";
// The user of the product's images and of restricted test pods.
constexpr int kUser = 65532;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  return std::move(content).str();
}

}  // namespace

std::string CommandResult::Text() const {
  return "exit code " + std::to_string(exit_code) + "\n" + output + errors;
}

CommandResult RunCommand(const std::vector<std::string>& command, const std::string& input) {
  const TempDir files;
  std::ofstream(files / "input", std::ios::binary) << input;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, 0, (files / "input").c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, (files / "output").c_str(), kWrite, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, (files / "errors").c_str(), kWrite, 0600);
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return {127, "", command[0] + ": " + std::strerror(error)};
  int status = 0;
  EVERSTEP_CHECK(waitpid(pid, &status, 0) == pid);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          ReadAll(files / "output"), ReadAll(files / "errors")};
}

fs::path ClusterStateDir() { return fs::path(EVERSTEP_BINARY_DIR) / "cluster"; }

fs::path BaseImageArchive() { return CacheDir() + "/images/base.tar"; }
fs::path ProductImageArchive(const std::string& name) {
  return fs::path(EVERSTEP_BINARY_DIR) / "images" / (name + ".tar");
}
std::string ProductImage(const std::string& name) {
  return "everstep.test/" + name + ":" EVERSTEP_VERSION;
}

CommandResult RunClusterScript(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"env", "EVERSTEP_CLUSTER=" + ClusterStateDir().string(),
                                      std::string(EVERSTEP_SOURCE_DIR) + "/tests/cluster/cluster"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RunCommand(command);
}

// ---- TestCluster ----

TestCluster::TestCluster(int nodes) : started_(RunClusterScript({"up", std::to_string(nodes)})) {}

TestCluster::~TestCluster() {
  const CommandResult stopped = RunClusterScript({"down"});
  EXPECT_TRUE(stopped.ok()) << stopped.Text();
}

CommandResult TestCluster::Load(const fs::path& image_archive) const {
  return RunClusterScript({"load", image_archive.string()});
}
CommandResult TestCluster::KillNode(int index) const {
  return RunClusterScript({"kill-node", std::to_string(index)});
}
CommandResult TestCluster::StartNode(int index) const {
  return RunClusterScript({"start-node", std::to_string(index)});
}

CommandResult TestCluster::Kubectl(std::vector<std::string> arguments,
                                   const std::string& input) const {
  std::vector<std::string> command = {
      CacheDir() + "/" + kKubernetes + "/kubectl",
      "--kubeconfig=" + (ClusterStateDir() / "pki/admin.kubeconfig").string(),
      "--cache-dir=" + (ClusterStateDir() / "cache").string()};
  command.insert(command.end(), std::make_move_iterator(arguments.begin()),
                 std::make_move_iterator(arguments.end()));
  return RunCommand(command, input);
}

CommandResult TestCluster::Helm(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(),
                   {CacheDir() + "/" + kKubernetes + "/helm",
                    "--kubeconfig=" + (ClusterStateDir() / "pki/admin.kubeconfig").string()});
  return RunCommand(arguments);
}

Json TestCluster::Get(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), "get");
  arguments.insert(arguments.end(), {"--output=json", "--ignore-not-found"});
  const CommandResult got = Kubectl(std::move(arguments));
  if (!got.ok() || got.output.empty()) return nullptr;
  return ParseJson(got.output, "kubectl get").value_or(Json());
}

bool TestCluster::IsReady(int node) const {
  const Json object = Get({"node", "node" + std::to_string(node)});
  if (object.is_null()) return false;
  for (const Json& condition : object["status"]["conditions"]) {
    if (condition["type"] == "Ready") return condition["status"] == "True";
  }
  return false;
}

// ---- TestNamespace ----

TestNamespace::TestNamespace(const TestCluster& cluster) : cluster_(cluster) {
  static std::atomic<int> number{0};
  name_ = "test-" + std::to_string(getpid()) + "-" + std::to_string(number++);
  const Json manifest = {
      {"apiVersion", "v1"},
      {"kind", "Namespace"},
      {"metadata",
       {{"name", name_}, {"labels", {{"pod-security.kubernetes.io/enforce", "restricted"}}}}}};
  const CommandResult made = cluster_.Kubectl({"apply", "-f", "-"}, DumpJson(manifest));
  EXPECT_TRUE(made.ok()) << made.Text();
  // Pods are refused until it is there.
  const auto has_account = [&] { return !Get({"serviceaccount", "default"}).is_null(); };
  EXPECT_TRUE(AwaitTrue(has_account));
}

TestNamespace::~TestNamespace() {
  cluster_.Kubectl({"delete", "namespace", name_, "--wait=false"});
}

CommandResult TestNamespace::Apply(const std::string& manifest) const {
  return cluster_.Kubectl({"--namespace=" + name_, "apply", "-f", "-"}, manifest);
}

CommandResult TestNamespace::Kubectl(std::vector<std::string> arguments,
                                     const std::string& input) const {
  arguments.insert(arguments.begin(), "--namespace=" + name_);
  return cluster_.Kubectl(std::move(arguments), input);
}

Json TestNamespace::Get(std::vector<std::string> arguments) const {
  arguments.push_back("--namespace=" + name_);
  return cluster_.Get(std::move(arguments));
}

std::string TestNamespace::PhaseOf(const std::string& pod) const {
  const Json object = Get({"pod", pod});
  return object.is_null() ? "" : JsonValue<std::string>(object["status"], "phase", "");
}

bool TestNamespace::AwaitPhase(const std::string& pod, const std::string& phase) const {
  return AwaitTrue([&] { return PhaseOf(pod) == phase; });
}

CommandResult TestNamespace::Exec(const std::string& pod, const std::string& line) const {
  return Kubectl({"exec", pod, "--", "sh", "-c", line});
}

// ---- Manifests ----

Json PodManifest(const PodShape& shape) {
  Json container = {{"name", "main"},
                    {"image", shape.image},
                    {"imagePullPolicy", "IfNotPresent"},
                    {"command", shape.command}};
  Json spec = {{"terminationGracePeriodSeconds", 0}, {"restartPolicy", "Never"}};
  if (!shape.as_root) {
    spec["securityContext"] = {{"runAsNonRoot", true},
                               {"runAsUser", kUser},
                               {"seccompProfile", {{"type", "RuntimeDefault"}}}};
    container["securityContext"] = {{"allowPrivilegeEscalation", false},
                                    {"capabilities", {{"drop", {"ALL"}}}}};
  }
  if (!shape.claim.empty()) {
    spec["volumes"] = Json::array(
        {{{"name", "shared"}, {"persistentVolumeClaim", {{"claimName", shape.claim}}}}});
    container["volumeMounts"] = Json::array({{{"name", "shared"}, {"mountPath", "/shared"}}});
  }
  if (shape.node >= 0) {
    spec["nodeSelector"] = {{"kubernetes.io/hostname", "node" + std::to_string(shape.node)}};
  }
  spec["containers"] = Json::array({std::move(container)});
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", shape.name}, {"labels", {{"app", shape.name}}}}},
          {"spec", std::move(spec)}};
}

Json ClaimManifest(const std::string& name) {
  return {
      {"apiVersion", "v1"},
      {"kind", "PersistentVolumeClaim"},
      {"metadata", {{"name", name}}},
      {"spec",
       {{"accessModes", {"ReadWriteMany"}}, {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}};
}

}  // namespace everstep::testing
