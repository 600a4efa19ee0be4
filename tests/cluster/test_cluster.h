// The cluster of tests/cluster/cluster, driven with its own script and with kubectl.
#ifndef EVERSTEP_TESTS_CLUSTER_TEST_CLUSTER_H_
#define EVERSTEP_TESTS_CLUSTER_TEST_CLUSTER_H_

#include <filesystem>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace everstep::testing {

struct CommandResult {
  int exit_code = -1;  // 128 + the signal if one ended it
  std::string output;
  std::string errors;

  bool ok() const { return exit_code == 0; }
  // For the message of a failed expectation.
  std::string Text() const;
};

// Runs a program (found in PATH) with `input` as its standard input, and waits for its end. It
// waits as long as the program runs: give kubectl a --timeout where it could wait for ever.
CommandResult RunCommand(const std::vector<std::string>& command, const std::string& input = "");

// tests/cluster/cluster with the state directory build/cluster. One at a time on a machine.
CommandResult RunClusterScript(const std::vector<std::string>& arguments);
std::filesystem::path ClusterStateDir();
// What tests/cluster/images has made: Debian with a shell, and the product's images.
std::filesystem::path BaseImageArchive();
std::filesystem::path ProductImageArchive(const std::string& name);
// everstep.test/NAME:VERSION
std::string ProductImage(const std::string& name);

// A cluster that runs: up in the constructor, down in the destructor. After a crash of the test
// program it is left over; the next one takes it away.
class TestCluster {
 public:
  explicit TestCluster(int nodes = 3);
  ~TestCluster();
  TestCluster(const TestCluster&) = delete;
  TestCluster& operator=(const TestCluster&) = delete;

  // Whether it came up; everything below needs that.
  const CommandResult& started() const { return started_; }

  CommandResult Load(const std::filesystem::path& image_archive) const;
  CommandResult KillNode(int index) const;
  CommandResult StartNode(int index) const;

  // As the administrator.
  CommandResult Kubectl(std::vector<std::string> arguments, const std::string& input = "") const;
  CommandResult Helm(std::vector<std::string> arguments) const;
  // The object (or List) of `kubectl get ARGUMENTS -o json`; null if there is none.
  Json Get(std::vector<std::string> arguments) const;
  // Whether the node's condition Ready is True.
  bool IsReady(int node) const;

 private:
  CommandResult started_;
};

// A namespace of its own for one test, which refuses pods that are not restricted (the Pod Security
// standard). It goes, with all in it, at the end of the test; nothing waits for that.
class TestNamespace {
 public:
  explicit TestNamespace(const TestCluster& cluster);
  ~TestNamespace();
  TestNamespace(const TestNamespace&) = delete;
  TestNamespace& operator=(const TestNamespace&) = delete;

  const std::string& name() const { return name_; }
  CommandResult Apply(const std::string& manifest) const;
  CommandResult Kubectl(std::vector<std::string> arguments, const std::string& input = "") const;
  Json Get(std::vector<std::string> arguments) const;
  // status.phase of a pod, "" if there is none.
  std::string PhaseOf(const std::string& pod) const;
  // False when the pod is not in that phase after a minute.
  bool AwaitPhase(const std::string& pod, const std::string& phase) const;
  // Runs a line of shell in a pod.
  CommandResult Exec(const std::string& pod, const std::string& line) const;

 private:
  const TestCluster& cluster_;
  std::string name_;
};

// What a test pod is like; the empty parts are left out.
struct PodShape {
  std::string name;
  std::string image = "docker.io/library/debian:bookworm-slim";
  std::vector<std::string> command = {"sleep", "infinity"};
  int node = -1;           // pinned to it
  std::string claim = "";  // mounted at /shared
  bool as_root = false;    // else as the restricted standard wants it
};

// JSON, which kubectl takes as well as YAML.
Json PodManifest(const PodShape& shape);
// A ReadWriteMany claim of the cluster's shared storage.
Json ClaimManifest(const std::string& name);

}  // namespace everstep::testing

#endif  // EVERSTEP_TESTS_CLUSTER_TEST_CLUSTER_H_
