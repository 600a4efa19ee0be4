// The operator on a real cluster: installed with helm, two replicas; jobs on three nodes that lose
// processes, pods and a node on the way, and end with the weights of an undisturbed run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "tests/cluster/test_cluster.h"
#include "tests/support/await.h"
#include "tests/support/paths.h"
#include "worker/hub/digest.h"

namespace everstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kNodes = 3;
constexpr char kSystem[] = "everstep-system";

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  return std::move(content).str();
}

void Replace(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// Processes of the machine by their name and the environment's entries; the nodes' are among them.
std::vector<pid_t> FindProcesses(const std::string& name,
                                 const std::map<std::string, std::string>& environment) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != pid.npos) continue;
    // The kernel cuts a command's name to 15 characters.
    if (ReadAll(entry.path() / "comm") != name.substr(0, 15) + "\n") continue;
    const std::string all = '\0' + ReadAll(entry.path() / "environ");
    bool matches = true;
    for (const auto& [key, value] : environment) {
      const std::string wanted = '\0' + key + "=" + value + '\0';
      matches = matches && all.find(wanted) != all.npos;
    }
    if (matches) found.push_back(std::stoi(pid));
  }
  return found;
}

class OperatorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = std::make_unique<TestCluster>(kNodes);
    ASSERT_TRUE(cluster_->started().ok()) << cluster_->started().Text();
    for (const char* image : {"worker", "operator"}) {
      const CommandResult loaded = cluster_->Load(ProductImageArchive(image));
      ASSERT_TRUE(loaded.ok()) << loaded.Text();
    }
    cluster_->Kubectl({"create", "namespace", kSystem});
    cluster_->Kubectl(
        {"label", "namespace", kSystem, "pod-security.kubernetes.io/enforce=restricted"});
    const CommandResult installed = Install();
    ASSERT_TRUE(installed.ok()) << installed.Text();
    space_ = std::make_unique<TestNamespace>(*cluster_);
    FillClaim();
    undisturbed_ = Train("undisturbed", [] {});
    ASSERT_NE(undisturbed_, "");
  }
  static void TearDownTestSuite() {
    space_.reset();
    cluster_.reset();
  }

  static CommandResult Install() {
    const auto image = [](const std::string& key, const std::string& name) {
      const std::string all = ProductImage(name);
      const size_t colon = all.rfind(':');
      return key + ".repository=" + all.substr(0, colon) + "," + key +
             ".tag=" + all.substr(colon + 1);
    };
    return cluster_->Helm({"install", "everstep", EVERSTEP_SOURCE_DIR "/helm/everstep",
                           "--namespace", kSystem, "--set", image("image", "operator"), "--set",
                           image("workerImage", "worker"), "--set", "image.pullPolicy=Never",
                           "--wait", "--timeout", "60s"});
  }

  // The claim `checkpoints` with a tiny model and its data.
  static void FillClaim() {
    ASSERT_TRUE(space_->Apply(DumpJson(ClaimManifest("checkpoints"))).ok());
    std::string path;
    ASSERT_TRUE(AwaitTrue([&] {
      const Json claim = space_->Get({"pvc", "checkpoints"});
      if (!claim.is_object() || !claim["spec"].contains("volumeName")) return false;
      const Json volume = cluster_->Get({"pv", claim["spec"]["volumeName"].get<std::string>()});
      path = volume["spec"]["hostPath"]["path"];
      return true;
    }));
    claim_ = path;
    fs::create_directories(claim_ / "models/tiny");
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(GoldenPath(std::string("models/tiny-llama/") + file),
                    claim_ / "models/tiny" / file);
    }
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
      fs::copy_file(fs::path(TestTokenizerDir("tiny-llama")) / file, claim_ / "models/tiny" / file);
    }
    fs::copy(EVERSTEP_SOURCE_DIR "/examples/data", claim_ / "data", fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(claim_)) {
      fs::permissions(entry.path(), fs::perms::all, fs::perm_options::replace);
    }
  }

  // The example's job under another name, longer, so that something can happen on the way.
  static std::string Manifest(const std::string& name) {
    std::string text = ReadAll(EVERSTEP_SOURCE_DIR "/examples/k8s/tiny-sft.yaml");
    Replace(text, "tiny-sft", name);
    Replace(text, "max_steps: 60", "max_steps: 300");
    Replace(text, "save_steps: 10", "save_steps: 100");
    Replace(text, "intervalSteps: 10", "intervalSteps: 100");
    return text;
  }

  static Json Job(const std::string& name) { return space_->Get({"tj", name}); }
  static Json Status(const std::string& name) {
    const Json job = Job(name);
    return job.is_object() && job.contains("status") ? job["status"] : Json::object();
  }
  static std::string Phase(const std::string& name) {
    return JsonValue<std::string>(Status(name), "phase", "");
  }
  static int64_t Step(const std::string& name) {
    const Json status = Status(name);
    return status.contains("progress") ? JsonValue<int64_t>(status["progress"], "step", 0) : 0;
  }
  // A node that is lost is noticed late by Kubernetes: several minutes altogether.
  static bool AwaitEnd(const std::string& name) {
    for (int minute = 0; minute < 4; ++minute) {
      if (AwaitTrue([&] {
            const std::string phase = Phase(name);
            return phase == "Succeeded" || phase == "Failed";
          })) {
        return true;
      }
    }
    return false;
  }

  // Runs the job to its end, with `disturb` on the way; the SHA-256 of what it trained, or "".
  template <typename Disturb>
  static std::string Train(const std::string& name, Disturb disturb) {
    const CommandResult applied = space_->Apply(Manifest(name));
    EXPECT_TRUE(applied.ok()) << applied.Text();
    EXPECT_TRUE(AwaitTrue([&] { return Step(name) >= 20; })) << Explain(name);
    EXPECT_EQ(Phase(name), "Running");
    disturb();
    EXPECT_TRUE(AwaitEnd(name)) << Explain(name);
    EXPECT_EQ(Phase(name), "Succeeded") << Explain(name);
    const auto digest = FileSha256((claim_ / name / "model.safetensors").string());
    EXPECT_TRUE(digest.has_value()) << digest.error().message;
    return digest.value_or("");
  }
  static std::string Explain(const std::string& name) {
    return DumpJson(Status(name), 1) + "\n" +
           space_->Kubectl({"get", "pods", "-o", "wide"}).output +
           cluster_
               ->Kubectl({"-n", kSystem, "logs", "-l", "app.kubernetes.io/instance=everstep",
                          "--tail=40"})
               .output;
  }

  static std::string PodOf(const std::string& job, int replica) {
    const Json pods = space_->Get(
        {"pods", "-l",
         "everstep.dev/job=" + job + ",everstep.dev/replica=" + std::to_string(replica)});
    for (const Json& pod : pods["items"]) {
      if (pod["status"]["phase"] == "Running" && !pod["metadata"].contains("deletionTimestamp")) {
        return pod["metadata"]["name"];
      }
    }
    return "";
  }
  static int NodeOf(const std::string& pod) {
    const std::string node = space_->Get({"pod", pod})["spec"]["nodeName"];
    return std::stoi(node.substr(4));
  }
  static void Kill(const std::string& program, const std::string& job, int replica) {
    const auto pids = FindProcesses(program, {{"EVERSTEP_JOB", space_->name() + "/" + job},
                                              {"EVERSTEP_REPLICA", std::to_string(replica)}});
    ASSERT_FALSE(pids.empty()) << program << " of " << job;
    for (const pid_t pid : pids) kill(pid, SIGKILL);
  }
  static std::string Leader() {
    return cluster_->Get({"-n", kSystem, "lease", "everstep-operator"})["spec"]["holderIdentity"];
  }
  // The operator that leads is on another node then, and has led for long enough to know all pods.
  static void MoveLeaderOff(int node) {
    const std::string leader = Leader();
    const Json pod = cluster_->Get({"-n", kSystem, "pod", leader});
    if (pod["spec"]["nodeName"] != "node" + std::to_string(node)) return;
    cluster_->Kubectl({"-n", kSystem, "delete", "pod", leader});
    ASSERT_TRUE(AwaitTrue([&] { return Leader() != leader && !Leader().empty(); }));
  }
  static int64_t Charged(const std::string& job) {
    const Json status = Status(job);
    return status.contains("restarts") ? JsonValue<int64_t>(status["restarts"], "total", 0) : 0;
  }
  static std::string CausesOf(const std::string& job) {
    std::string causes;
    const Json status = Status(job);
    if (!status.contains("incidents")) return "";
    for (const Json& incident : status["incidents"]) {
      causes += JsonValue<std::string>(incident, "cause", "?") + " " +
                std::to_string(JsonValue<int>(incident, "rank", -1)) + ";";
    }
    return causes;
  }

  inline static std::unique_ptr<TestCluster> cluster_;
  inline static std::unique_ptr<TestNamespace> space_;
  inline static fs::path claim_;
  inline static std::string undisturbed_;
};

TEST_F(OperatorTest, AJobLeavesItsResultsAndSaysSo) {
  for (const char* file : {"model.safetensors", "config.json", "trainer_log.jsonl",
                           "train_results.json", "tokenizer.json"}) {
    EXPECT_TRUE(fs::exists(claim_ / "undisturbed" / file)) << file;
  }
  const std::string table = space_->Kubectl({"get", "tj", "undisturbed"}).output;
  EXPECT_THAT(table, HasSubstr("NAME"));
  for (const char* column : {"PHASE", "READY", "STEP", "CHECKPOINT", "RESTARTS", "GOODPUT"}) {
    EXPECT_THAT(table, HasSubstr(column));
  }
  EXPECT_THAT(table, HasSubstr("Succeeded"));
  EXPECT_THAT(table, HasSubstr("300"));
  std::map<std::string, std::string> conditions;
  const Json status = Status("undisturbed");
  for (const Json& condition : status["conditions"]) {
    conditions[condition["type"]] = condition["status"];
  }
  for (const char* type : {"Ready", "Succeeded", "VolumesReady", "CheckpointHealthy"}) {
    EXPECT_EQ(conditions[type], "True") << type;
  }
  for (const char* type : {"Reconciling", "Stalled", "Running", "Failed"}) {
    EXPECT_EQ(conditions[type], "False") << type;
  }
  EXPECT_FALSE(status.contains("incidents")) << Explain("undisturbed");
}

TEST_F(OperatorTest, AWorkerIsKilled) {
  EXPECT_EQ(Train("worker", [] { Kill("everstep-worker", "worker", 1); }), undisturbed_);
  EXPECT_EQ(CausesOf("worker"), "signaled 1;");
  EXPECT_EQ(Charged("worker"), 1);
}

TEST_F(OperatorTest, ASupervisorIsKilled) {
  EXPECT_EQ(Train("supervisor", [] { Kill("everstep-supervisor", "supervisor", 2); }),
            undisturbed_);
  EXPECT_EQ(CausesOf("supervisor"), "vanished 2;");
}

TEST_F(OperatorTest, APodIsDeletedByForce) {
  EXPECT_EQ(
      Train("forced",
            [] {
              space_->Kubectl({"delete", "pod", PodOf("forced", 0), "--force", "--grace-period=0"});
            }),
      undisturbed_);
  EXPECT_EQ(Charged("forced"), 0) << Explain("forced");
}

TEST_F(OperatorTest, APodIsEvicted) {
  EXPECT_EQ(Train("evicted",
                  [] {
                    const std::string pod = PodOf("evicted", 1);
                    const Json eviction = {
                        {"apiVersion", "policy/v1"},
                        {"kind", "Eviction"},
                        {"metadata", {{"name", pod}, {"namespace", space_->name()}}}};
                    const CommandResult evicted = space_->Kubectl(
                        {"create", "--raw",
                         "/api/v1/namespaces/" + space_->name() + "/pods/" + pod + "/eviction",
                         "-f", "-"},
                        DumpJson(eviction));
                    EXPECT_TRUE(evicted.ok()) << evicted.Text();
                  }),
            undisturbed_);
  EXPECT_EQ(Charged("evicted"), 0) << Explain("evicted");
}

TEST_F(OperatorTest, ANodeIsDrained) {
  std::string node;
  EXPECT_EQ(Train("drained",
                  [&] {
                    node = "node" + std::to_string(NodeOf(PodOf("drained", 2)));
                    const CommandResult drained =
                        cluster_->Kubectl({"drain", node, "--ignore-daemonsets", "--force",
                                           "--delete-emptydir-data", "--timeout=60s"});
                    EXPECT_TRUE(drained.ok()) << drained.Text();
                  }),
            undisturbed_);
  cluster_->Kubectl({"uncordon", node});
  EXPECT_EQ(Charged("drained"), 0) << Explain("drained");
}

TEST_F(OperatorTest, AllWorkersAreKilledAtOnce) {
  EXPECT_EQ(Train("all",
                  [] {
                    for (int replica = 0; replica < kNodes; ++replica) {
                      Kill("everstep-worker", "all", replica);
                    }
                  }),
            undisturbed_);
}

TEST_F(OperatorTest, TheLeadingOperatorIsKilled) {
  EXPECT_EQ(Train("leaderless",
                  [] {
                    const Json lease = cluster_->Get({"-n", kSystem, "lease", "everstep-operator"});
                    const std::string leader = lease["spec"]["holderIdentity"];
                    const CommandResult killed = cluster_->Kubectl(
                        {"-n", kSystem, "delete", "pod", Leader(), "--force", "--grace-period=0"});
                    EXPECT_TRUE(killed.ok()) << killed.Text();
                  }),
            undisturbed_);
  EXPECT_EQ(Charged("leaderless"), 0) << Explain("leaderless");
}

TEST_F(OperatorTest, ANodeLosesItsPower) {
  int node = -1;
  EXPECT_EQ(Train("powerless",
                  [&] {
                    node = NodeOf(PodOf("powerless", 1));
                    MoveLeaderOff(node);
                    const CommandResult killed = cluster_->KillNode(node);
                    EXPECT_TRUE(killed.ok()) << killed.Text();
                  }),
            undisturbed_);
  EXPECT_THAT(CausesOf("powerless"), HasSubstr("vanished 1;"));
  const CommandResult started = cluster_->StartNode(node);
  EXPECT_TRUE(started.ok()) << started.Text();
}

}  // namespace
}  // namespace everstep::testing
