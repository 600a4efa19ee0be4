// The runtime as it is: real processes, real signals.
#include "operator/local/process_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/await.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/operator/local/pod_objects.h"

namespace everstep {
namespace {

using testing::HasSubstr;

// Zombies count as gone: their parent may be this test, which does not reap them.
bool Exists(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  const size_t end = text.rfind(')');
  return end != std::string::npos && text[end + 2] != 'Z' && text[end + 2] != 'X';
}

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ProcessRuntimeTest : public testing::Test {
 protected:
  ProcessRuntimeTest() { store_ = std::move(*ObjectStore::Open(root_ / "state", clock_)); }

  void Start() {
    auto runtime = ProcessRuntime::Start({.run_directory = root_ / "run",
                                          .program_directory = programs_,
                                          .grace_seconds = grace_seconds_},
                                         *store_, clock_);
    ASSERT_TRUE(runtime.has_value()) << runtime.error().message;
    runtime_ = std::move(*runtime);
  }
  void Create(const OrderedJson& object) {
    const auto created = store_->Create(object);
    ASSERT_TRUE(created.has_value()) << created.error().message;
  }
  void CreateShellPod(const std::string& name, const std::string& script) {
    Create(MakePod(name, {"sh", "-c", script}));
  }
  OrderedJson StatusOf(const std::string& name) {
    const auto pod = store_->Get("Pod", name);
    return pod && pod->contains("status") ? (*pod)["status"] : OrderedJson::object();
  }
  OrderedJson AwaitPhase(const std::string& name, const std::string& phase) {
    EXPECT_TRUE(AwaitTrue([&] { return StatusOf(name).value("phase", "") == phase; }))
        << name << " is not " << phase << ": " << DumpJson(StatusOf(name));
    return StatusOf(name);
  }
  bool AwaitGone(const std::string& name) {
    return AwaitTrue([&] { return !store_->Get("Pod", name).has_value(); });
  }
  std::string LogPath(const std::string& name) { return root_ / ("run/logs/" + name + ".log"); }
  std::string AwaitLog(const std::string& name, const std::string& text) {
    EXPECT_TRUE(AwaitTrue([&] { return Contents(LogPath(name)).find(text) != std::string::npos; }))
        << Contents(LogPath(name));
    return Contents(LogPath(name));
  }
  int ExitCodeOf(const OrderedJson& status) {
    return status["containerStatuses"][0]["state"]["terminated"]["exitCode"].get<int>();
  }

  TempDir root_;
  SystemClock clock_;
  double grace_seconds_ = 60;
  std::string programs_ = EVERSTEP_BINARY_DIR "/bin";
  std::unique_ptr<ObjectStore> store_;
  std::unique_ptr<ProcessRuntime> runtime_;
};

TEST_F(ProcessRuntimeTest, RunsAPodAndKeepsItsOutput) {
  Start();
  CreateShellPod("job-0-0", "echo to stdout; echo to stderr >&2");
  const OrderedJson status = AwaitPhase("job-0-0", "Succeeded");
  EXPECT_EQ(ExitCodeOf(status), 0);
  EXPECT_EQ(Contents(LogPath("job-0-0")), "to stdout\nto stderr\n");
}

TEST_F(ProcessRuntimeTest, StartsPodsThatWereThereBefore) {
  CreateShellPod("job-0-0", "exit 0");
  Start();
  AwaitPhase("job-0-0", "Succeeded");
}

TEST_F(ProcessRuntimeTest, ARunningPodHasItsProcessAndAddress) {
  Start();
  Create(MakePod("job-2-0", {"sleep", "1000"}, 2));
  const OrderedJson status = AwaitPhase("job-2-0", "Running");
  EXPECT_EQ(status["podIP"], "127.0.1.3");
  EXPECT_TRUE(Exists(status["processId"].get<pid_t>()));
  // A process group of its own.
  EXPECT_EQ(getpgid(status["processId"].get<pid_t>()), status["processId"].get<pid_t>());
}

TEST_F(ProcessRuntimeTest, TellsExitCodesAndSignals) {
  Start();
  CreateShellPod("job-0-0", "exit 7");
  CreateShellPod("job-1-0", "kill -9 $$");
  EXPECT_EQ(ExitCodeOf(AwaitPhase("job-0-0", "Failed")), 7);
  const OrderedJson killed = AwaitPhase("job-1-0", "Failed");
  EXPECT_EQ(ExitCodeOf(killed), 137);
  EXPECT_EQ(killed["containerStatuses"][0]["state"]["terminated"]["signal"], 9);
}

TEST_F(ProcessRuntimeTest, GivesAPodItsEnvironmentOnTopOfOurs) {
  setenv("EVERSTEP_TEST_INHERITED", "yes", 1);
  setenv("EVERSTEP_TEST_OVERRIDDEN", "outer", 1);
  Start();
  OrderedJson pod = MakePod(
      "job-1-0",
      {"sh", "-c", "echo \"$EVERSTEP_TEST_INHERITED $EVERSTEP_TEST_OVERRIDDEN $IP $MASTER\""}, 1);
  AddEnv(pod, "EVERSTEP_TEST_OVERRIDDEN", "inner");
  AddEnv(pod, "MASTER", "job-1.job");
  AddField(pod, "IP", "status.podIP");
  Create(pod);
  AwaitPhase("job-1-0", "Succeeded");
  EXPECT_EQ(Contents(LogPath("job-1-0")), "yes inner 127.0.1.2 127.0.1.2\n");
}

TEST_F(ProcessRuntimeTest, APodWorksWhereItsUserDoes) {
  Start();
  CreateShellPod("job-0-0", "pwd; cat");
  AwaitPhase("job-0-0", "Succeeded");  // its standard input is empty
  EXPECT_EQ(Contents(LogPath("job-0-0")), std::filesystem::current_path().string() + "\n");
}

TEST_F(ProcessRuntimeTest, ClaimsAndConfigMapsAreDirectories) {
  Start();
  OrderedJson map = MakeObject("ConfigMap", "job-train");
  map["data"] = {{"train.yaml", "stage: sft\n"}};
  Create(map);
  OrderedJson pod = MakePod(
      "job-0-0", {"sh", "-c", "cat \"$TRAIN\"; echo kept > \"$CKPT/file\"; echo \"$CKPT\""});
  pod["spec"]["volumes"] = OrderedJson::array();
  pod["spec"]["volumes"].push_back(
      {{"name", "checkpoint"}, {"persistentVolumeClaim", {{"claimName", "shared"}}}});
  pod["spec"]["volumes"].push_back({{"name", "train"}, {"configMap", {{"name", "job-train"}}}});
  AddMount(pod, "checkpoint", "/checkpoints");
  AddMount(pod, "train", "/etc/everstep");
  AddEnv(pod, "TRAIN", "/etc/everstep/train.yaml");
  AddEnv(pod, "CKPT", "/checkpoints");
  Create(pod);
  AwaitPhase("job-0-0", "Succeeded");
  const std::string claim = root_ / "run/claims/shared";
  EXPECT_EQ(Contents(LogPath("job-0-0")), "stage: sft\n" + claim + "\n");
  EXPECT_EQ(Contents(claim + "/file"), "kept\n");
}

TEST_F(ProcessRuntimeTest, AConfigMapThatIsMissingFailsThePod) {
  Start();
  OrderedJson pod = MakePod("job-0-0", {"true"});
  pod["spec"]["volumes"] = OrderedJson::array();
  pod["spec"]["volumes"].push_back({{"name", "train"}, {"configMap", {{"name", "nowhere"}}}});
  Create(pod);
  const OrderedJson status = AwaitPhase("job-0-0", "Failed");
  EXPECT_EQ(status["reason"], "StartError");
  EXPECT_EQ(status["message"], "ConfigMap 'nowhere' does not exist");
}

TEST_F(ProcessRuntimeTest, AProgramThatIsMissingFailsThePod) {
  Start();
  Create(MakePod("job-0-0", {"no-such-program", "x"}));
  const OrderedJson status = AwaitPhase("job-0-0", "Failed");
  EXPECT_EQ(status["reason"], "StartError");
  EXPECT_EQ(status["message"], "cannot start no-such-program: No such file or directory");
}

TEST_F(ProcessRuntimeTest, APodWithoutACommandFails) {
  Start();
  Create(MakePod("job-0-0", {}));
  EXPECT_EQ(AwaitPhase("job-0-0", "Failed")["message"], "pod job-0-0 has no command");
}

TEST_F(ProcessRuntimeTest, OurOwnProgramsAreFoundBesideUs) {
  programs_ = root_ / "programs";
  std::filesystem::create_directory(programs_);
  std::ofstream(programs_ + "/sh") << "#!/bin/sh\necho ours\n";
  std::filesystem::permissions(programs_ + "/sh", std::filesystem::perms::owner_all);
  Start();
  CreateShellPod("job-0-0", "echo theirs");
  AwaitPhase("job-0-0", "Succeeded");
  EXPECT_EQ(Contents(LogPath("job-0-0")), "ours\n");
}

TEST_F(ProcessRuntimeTest, ADeletedPodMaySaveFirst) {
  Start();
  CreateShellPod("job-0-0",
                 "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done");
  AwaitLog("job-0-0", "ready");
  AwaitPhase("job-0-0", "Running");  // an object that does not say so yet would go at once
  ASSERT_TRUE(store_->Delete("Pod", "job-0-0").has_value());
  EXPECT_TRUE(AwaitGone("job-0-0"));
  EXPECT_EQ(Contents(LogPath("job-0-0")), "ready\nsaved\n");
}

TEST_F(ProcessRuntimeTest, ADeletedPodThatStaysIsKilledAfterItsGrace) {
  grace_seconds_ = 0.05;
  Start();
  CreateShellPod("job-0-0", "trap 'echo no' TERM; echo ready; while :; do sleep 0.01; done");
  AwaitLog("job-0-0", "ready");
  const pid_t pid = AwaitPhase("job-0-0", "Running")["processId"].get<pid_t>();
  ASSERT_TRUE(store_->Delete("Pod", "job-0-0").has_value());
  EXPECT_TRUE(AwaitGone("job-0-0"));
  EXPECT_FALSE(Exists(pid));
  EXPECT_THAT(Contents(LogPath("job-0-0")), HasSubstr("no\n"));
}

TEST_F(ProcessRuntimeTest, DeletingTheJobEndsItsPods) {
  Start();
  const OrderedJson job = *store_->Create(MakeObject("TrainingJob", "job"));
  Create(OwnedBy(MakePod("job-0-0", {"sleep", "1000"}), job));
  const pid_t pid = AwaitPhase("job-0-0", "Running")["processId"].get<pid_t>();
  ASSERT_TRUE(store_->Delete("TrainingJob", "job").has_value());
  EXPECT_TRUE(AwaitGone("job-0-0"));
  EXPECT_TRUE(AwaitTrue([&] { return !Exists(pid); }));
}

TEST_F(ProcessRuntimeTest, AProcessWithoutAnObjectIsStopped) {
  Start();
  Create(MakePod("job-0-0", {"sleep", "1000"}));
  const pid_t pid = AwaitPhase("job-0-0", "Running")["processId"].get<pid_t>();
  ASSERT_TRUE(store_->Remove("Pod", "job-0-0").has_value());
  EXPECT_TRUE(AwaitTrue([&] { return !Exists(pid); }));
}

TEST_F(ProcessRuntimeTest, WhatAPodsProcessLeavesBehindGoesWithIt) {
  Start();
  CreateShellPod("job-0-0", "sleep 1000 & echo $!; exit 3");
  AwaitPhase("job-0-0", "Failed");
  const pid_t left = std::stoi(Contents(LogPath("job-0-0")));
  EXPECT_TRUE(AwaitTrue([&] { return !Exists(left); }));
}

TEST_F(ProcessRuntimeTest, EverythingEndsWithTheRuntime) {
  Start();
  CreateShellPod("job-0-0", "trap '' TERM; sleep 1000 & echo $!; wait");
  const pid_t pid = AwaitPhase("job-0-0", "Running")["processId"].get<pid_t>();
  const pid_t child = std::stoi(AwaitLog("job-0-0", "\n"));
  runtime_.reset();
  EXPECT_FALSE(Exists(pid));
  EXPECT_TRUE(AwaitTrue([&] { return !Exists(child); }));
}

TEST_F(ProcessRuntimeTest, OneGenerationOfPodsAfterAnother) {
  Start();
  for (int incarnation = 0; incarnation < 5; ++incarnation) {
    const std::string name = "job-0-" + std::to_string(incarnation);
    CreateShellPod(name, "exit " + std::to_string(incarnation + 1));
    EXPECT_EQ(ExitCodeOf(AwaitPhase(name, "Failed")), incarnation + 1);
    ASSERT_TRUE(store_->Delete("Pod", name).has_value());
  }
  EXPECT_TRUE(store_->List("Pod")->empty());
}

// ---- A runtime that is killed ----

class KilledRuntimeTest : public ProcessRuntimeTest {
 protected:
  // Runs the pods of the store in another process, which is ready when this returns.
  void StartHost() {
    store_.reset();
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    host_ = fork();
    if (host_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      close(ends[1]);
      const std::string program = EVERSTEP_BINARY_DIR "/bin/runtime_test_host";
      const std::string state = root_ / "state", run = root_ / "run";
      execl(program.c_str(), program.c_str(), state.c_str(), run.c_str(), programs_.c_str(),
            nullptr);
      _exit(127);
    }
    close(ends[1]);
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), 1) << "the host does not start";
    close(ends[0]);
  }
  void KillHost() {
    kill(host_, SIGKILL);
    waitpid(std::exchange(host_, -1), nullptr, 0);
  }
  ~KilledRuntimeTest() override {
    if (host_ > 0) KillHost();
    if (left_ > 0 && Exists(left_)) kill(left_, SIGKILL);
  }
  // A supervisor with a child that names both in a file.
  OrderedJson SupervisorPod() {
    OrderedJson pod = MakePod("job-0-0", {"everstep-supervisor", "--", "sh", "-c",
                                          "echo $PPID $$ > \"$PIDS.new\" && mv \"$PIDS.new\" "
                                          "\"$PIDS\"; exec sleep 1000"});
    AddEnv(pod, "EVERSTEP_JOB", "job");
    AddEnv(pod, "PIDS", root_ / "pids");
    return pod;
  }
  // Supervisor and child.
  std::pair<pid_t, pid_t> AwaitPids() {
    EXPECT_TRUE(AwaitTrue([&] { return std::filesystem::exists(root_ / "pids"); }));
    std::pair<pid_t, pid_t> pids{-1, -1};
    std::ifstream(root_ / "pids") >> pids.first >> pids.second;
    return pids;
  }

  pid_t host_ = -1;
  pid_t left_ = -1;
};

TEST_F(KilledRuntimeTest, SupervisorAndItsProcessesDieWithIt) {
  Create(SupervisorPod());
  StartHost();
  const auto [supervisor, child] = AwaitPids();
  ASSERT_TRUE(Exists(supervisor));
  ASSERT_TRUE(Exists(child));
  KillHost();
  EXPECT_TRUE(AwaitTrue([&, pid = supervisor] { return !Exists(pid); }));
  EXPECT_TRUE(AwaitTrue([&, pid = child] { return !Exists(pid); }));
}

TEST_F(KilledRuntimeTest, ItsPodsAreLostAtTheNextStart) {
  Create(SupervisorPod());
  Create(MakePod("job-1-0", {"sh", "-c", "exit 0"}, 1));
  StartHost();
  AwaitPids();
  const std::string done = root_ / "state/Pod/job-1-0.json";
  const std::string runs = root_ / "state/Pod/job-0-0.json";
  ASSERT_TRUE(AwaitTrue([&] {
    return Contents(done).find("Succeeded") != std::string::npos &&
           Contents(runs).find("Running") != std::string::npos;
  }));
  KillHost();

  store_ = std::move(*ObjectStore::Open(root_ / "state", clock_));
  EXPECT_EQ(StatusOf("job-0-0")["phase"], "Running");
  Start();
  const OrderedJson status = StatusOf("job-0-0");
  EXPECT_EQ(status["phase"], "Failed");
  EXPECT_EQ(status["reason"], "Lost");
  EXPECT_EQ(status["message"], "its process ended with the run before");
  EXPECT_EQ(StatusOf("job-1-0")["phase"], "Succeeded");
}

TEST_F(KilledRuntimeTest, APodThatWasBeingDeletedIsGoneAtTheNextStart) {
  OrderedJson pod = MakePod("job-0-0", {"true"});
  Create(pod);
  pod = *store_->Get("Pod", "job-0-0");
  pod["status"] = {{"phase", "Running"}};
  ASSERT_TRUE(store_->UpdateStatus(pod).has_value());
  ASSERT_TRUE(store_->Delete("Pod", "job-0-0").has_value());
  Start();
  EXPECT_FALSE(store_->Get("Pod", "job-0-0").has_value());
}

}  // namespace
}  // namespace everstep
