// The cluster comes and goes without a trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "tests/cluster/test_cluster.h"

namespace everstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::set<std::string> Lines(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.insert(line);
  return lines;
}

// Without what other tests mount in their temporary directories.
std::set<std::string> Mounts() {
  std::set<std::string> mounts = Lines(ReadAll("/proc/self/mounts"));
  std::erase_if(mounts, [](const std::string& line) { return line.find(" /tmp/") != line.npos; });
  return mounts;
}

// By what the cluster's programs are called (the kernel cuts names); others come and go meanwhile.
std::set<std::string> Processes() {
  static const std::set<std::string> kOurs{
      "containerd", "containerd-shim", "coredns", "etcd",    "kube-apiserver", "kube-controller",
      "kube-proxy", "kube-scheduler",  "kubelet", "machine", "pause"};
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::string name = ReadAll(entry.path() / "comm");
    if (!name.empty()) name.pop_back();
    if (kOurs.contains(name)) found.insert(entry.path().filename().string() + " " + name);
  }
  return found;
}

std::set<std::string> Names(const fs::path& directory, const std::string& part = "") {
  std::set<std::string> names;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(directory, absent)) {
    const std::string path = entry.path().string();
    if (path.find(part) != path.npos) names.insert(path);
  }
  return names;
}

// All that a cluster could leave on a machine, by kind.
std::map<std::string, std::set<std::string>> Traces() {
  std::map<std::string, std::set<std::string>> traces;
  traces["mounts"] = Mounts();
  traces["processes"] = Processes();
  traces["links"] = Names("/sys/class/net");
  traces["routes"] = Lines(RunCommand({"ip", "route", "show", "table", "all"}).output);
  traces["namespaces"] = Names("/run/netns");
  traces["state"] = Names(fs::path(EVERSTEP_BINARY_DIR), "/cluster");
  for (const char* directory : {"/run", "/var/lib", "/var/log", "/etc", "/usr/libexec"}) {
    traces[directory] = Names(directory);
  }
  for (const std::string& controller : Names("/sys/fs/cgroup")) {
    traces["cgroups"].merge(Names(controller, "/everstep-"));
  }
  for (const char* setting :
       {"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward"}) {
    traces["settings"].insert(std::string(setting) + " " +
                              ReadAll(std::string("/proc/sys/") + setting));
  }
  return traces;
}

class ClusterLifecycleTest : public ::testing::Test {
 protected:
  ClusterLifecycleTest() {
    // What a crashed run has left is not this one's.
    const CommandResult cleaned = RunClusterScript({"down"});
    EXPECT_TRUE(cleaned.ok()) << cleaned.Text();
    before_ = Traces();
  }

  void ExpectNoTraces() const {
    for (const auto& [kind, found] : Traces()) EXPECT_EQ(found, before_.at(kind)) << kind;
  }

  std::map<std::string, std::set<std::string>> before_;
};

TEST_F(ClusterLifecycleTest, DownLeavesNothing) {
  {
    const TestCluster cluster(1);
    ASSERT_TRUE(cluster.started().ok()) << cluster.started().Text();
    const TestNamespace space(cluster);
    ASSERT_TRUE(cluster.Load(BaseImageArchive()).ok());
    ASSERT_TRUE(space.Apply(DumpJson(ClaimManifest("shared"))).ok());
    ASSERT_TRUE(space.Apply(DumpJson(PodManifest({.name = "a", .claim = "shared"}))).ok());
    ASSERT_TRUE(space.AwaitPhase("a", "Running"));
    const auto during = Traces();
    EXPECT_NE(during.at("processes"), before_.at("processes"));
    EXPECT_NE(during.at("links"), before_.at("links"));
    EXPECT_NE(during.at("cgroups"), before_.at("cgroups"));
  }
  ExpectNoTraces();
}

// Whoever started it was killed, and somebody removed the state directory.
TEST_F(ClusterLifecycleTest, UpTakesALeftOverAway) {
  ASSERT_TRUE(RunClusterScript({"up", "1"}).ok());
  fs::remove_all(ClusterStateDir() / "pki");
  {
    const TestCluster cluster(1);
    ASSERT_TRUE(cluster.started().ok()) << cluster.started().Text();
    EXPECT_TRUE(cluster.IsReady(0));
  }
  ExpectNoTraces();
}

TEST_F(ClusterLifecycleTest, SaysWhatIsWrong) {
  const auto errors = [](const std::vector<std::string>& arguments) {
    const CommandResult result = RunClusterScript(arguments);
    EXPECT_EQ(result.exit_code, 1);
    return Lines(result.errors);
  };
  EXPECT_THAT(errors({"up", "none"}),
              Contains("cluster: error: the number of nodes must be 1 to 9, is 'none'"));
  EXPECT_THAT(errors({"kill-node", "1"}),
              Contains("cluster: error: no cluster runs in " + ClusterStateDir().string()));
  EXPECT_THAT(errors({"load", "absent.tar"}), Contains("cluster: error: cannot read absent.tar"));
}

}  // namespace
}  // namespace everstep::testing
