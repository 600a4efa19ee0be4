// The supervisor as it is: its own program, real children, a rendezvous on a real socket.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/frame_socket.h"
#include "tests/support/temp_dir.h"

namespace everstep {
namespace {

using testing::HasSubstr;

const std::string kSupervisor = EVERSTEP_BINARY_DIR "/bin/everstep-supervisor";
const std::string kChild = EVERSTEP_BINARY_DIR "/bin/supervisor_test_child";

bool AwaitTrue(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::yield();
  }
  return false;
}

bool Exists(pid_t pid) { return kill(pid, 0) == 0; }

class SupervisorTest : public testing::Test {
 protected:
  ~SupervisorTest() override {
    if (supervisor_ > 0) {
      kill(supervisor_, SIGKILL);
      waitpid(supervisor_, nullptr, 0);
    }
  }

  void Run(std::vector<std::string> command) {
    std::map<std::string, std::string> environment{
        {"EVERSTEP_JOB", "job"},
        {"EVERSTEP_TOKEN", "secret"},
        {"EVERSTEP_POD", "job-1-0"},
        {"EVERSTEP_NODE", "node"},
        {"EVERSTEP_REPLICA", "1"},
        {"EVERSTEP_INCARNATION", "4"},
        {"EVERSTEP_PROCESSES", std::to_string(processes_)},
        {"WORLD_SIZE", std::to_string(2 * processes_)},
        {"MASTER_ADDR", "127.0.1.1"},
        {"EVERSTEP_FIRST_START", "1"},
        {"PATH", "/usr/bin:/bin"}};
    if (with_rendezvous_) {
      environment["EVERSTEP_RENDEZVOUS"] = "127.0.0.1:" + std::to_string(listener_.port());
    }
    command.insert(command.begin(), {kSupervisor, "--"});
    std::vector<std::string> texts;
    for (const auto& [name, value] : environment) texts.push_back(name + "=" + value);
    std::vector<char*> argv, envp;
    for (std::string& text : command) argv.push_back(text.data());
    for (std::string& text : texts) envp.push_back(text.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    char name[] = "/tmp/everstep-supervisor-test-XXXXXX";
    const int log = mkstemp(name);
    log_ = name;
    supervisor_ = fork();
    if (supervisor_ == 0) {
      dup2(log, STDERR_FILENO);
      execve(argv[0], argv.data(), envp.data());
      _exit(127);
    }
    close(log);
  }

  // Accepts the supervisor and greets it; heartbeats come every 50 ms.
  void Accept() {
    socket_ = listener_.Accept();
    hello_ = socket_.Await<wire::Hello>();
    ASSERT_TRUE(hello_.has_value());
    socket_.Send(wire::Welcome{.heartbeat_timeout_seconds = 0.2});
  }
  // Until the (only) process is ready.
  void RunUntilReady(const std::string& mode) {
    Run({kChild, mode});
    Accept();
    started_ = socket_.Await<wire::ProcessStarted>();
    ASSERT_TRUE(started_.has_value());
    ready_ = socket_.Await<wire::Ready>();
    ASSERT_TRUE(ready_.has_value());
  }
  void SendMembership(uint64_t generation, std::vector<int> ranks) {
    wire::Membership membership{.generation = generation, .members = {}};
    for (int rank : ranks) {
      membership.members.push_back({.rank = rank, .endpoint = "e", .logical_ranks = {rank}});
    }
    socket_.Send(membership);
  }
  int ExitCode() {
    int status = 0;
    EXPECT_EQ(waitpid(std::exchange(supervisor_, -1), &status, 0) > 0, true);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string Log() {
    std::ifstream file(log_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void TearDown() override { unlink(log_.c_str()); }

  int processes_ = 1;
  bool with_rendezvous_ = true;
  FrameListener listener_;
  FrameSocket socket_;
  pid_t supervisor_ = -1;
  std::string log_;
  std::optional<wire::Hello> hello_;
  std::optional<wire::ProcessStarted> started_;
  std::optional<wire::Ready> ready_;
};

TEST_F(SupervisorTest, SaysHelloAndPassesOnWhatTheProcessSays) {
  RunUntilReady("train");
  EXPECT_EQ(hello_->job, "job");
  EXPECT_EQ(hello_->token, "secret");
  EXPECT_EQ(hello_->replica, 1);
  EXPECT_EQ(hello_->incarnation, 4);
  EXPECT_EQ(hello_->pod, "job-1-0");
  EXPECT_EQ(started_->rank, 1);
  EXPECT_EQ(ready_->rank, 1);
  EXPECT_EQ(ready_->endpoint, std::to_string(started_->pid));

  SendMembership(3, {0, 1});
  EXPECT_EQ(socket_.Await<wire::Regrouped>()->generation, 3u);
  ASSERT_TRUE(AwaitTrue([&] {
    const auto heartbeat = socket_.Await<wire::Heartbeat>();
    return !heartbeat || heartbeat->ranks.at(0).generation == 3;
  }));
  EXPECT_EQ(socket_.Await<wire::Heartbeat>()->ranks.at(0).phase, "compute");
}

TEST_F(SupervisorTest, AMembershipWithoutTheRankIsNotForItsProcess) {
  RunUntilReady("train");
  SendMembership(3, {0});
  SendMembership(4, {1});
  EXPECT_EQ(socket_.Await<wire::Regrouped>()->generation, 4u);
}

TEST_F(SupervisorTest, TellsOfAKilledProcessWithItsSignal) {
  RunUntilReady("train");
  SendMembership(3, {1});
  ASSERT_TRUE(socket_.Await<wire::Regrouped>().has_value());
  kill(static_cast<pid_t>(started_->pid), SIGKILL);
  const auto died = socket_.Await<wire::ProcessDied>();
  ASSERT_TRUE(died.has_value());
  EXPECT_EQ(died->rank, 1);
  EXPECT_EQ(died->generation, 3u);
  EXPECT_EQ(died->cause, wire::DeathCause::kSignaled);
  EXPECT_EQ(died->signal, SIGKILL);
  EXPECT_EQ(socket_.Await<wire::LastWords>()->signal, SIGKILL);
}

TEST_F(SupervisorTest, TellsOfACrash) {
  RunUntilReady("crash");
  SendMembership(3, {1});
  EXPECT_EQ(socket_.Await<wire::ProcessDied>()->cause, wire::DeathCause::kSignaled);
  EXPECT_EQ(socket_.Await<wire::LastWords>()->signal, SIGABRT);
}

TEST_F(SupervisorTest, StartsAProcessAgainInPlace) {
  RunUntilReady("train");
  const auto first = started_->pid;
  kill(static_cast<pid_t>(first), SIGKILL);
  ASSERT_TRUE(socket_.Await<wire::ProcessDied>().has_value());
  socket_.Send(wire::StartProcess{1});
  started_ = socket_.Await<wire::ProcessStarted>();
  ASSERT_TRUE(started_.has_value());
  EXPECT_NE(started_->pid, first);
  EXPECT_EQ(socket_.Await<wire::Ready>()->endpoint, std::to_string(started_->pid));
  // An order for one that lives, or for another pod's rank, changes nothing.
  socket_.Send(wire::StartProcess{1});
  socket_.Send(wire::StartProcess{0});
  SendMembership(3, {1});
  EXPECT_EQ(socket_.Await<wire::Regrouped>()->generation, 3u);
  EXPECT_TRUE(Exists(static_cast<pid_t>(started_->pid)));
}

TEST_F(SupervisorTest, OnlyTheFirstLifeIsAFirstStart) {
  Run({"sh", "-c", "echo \"first start: ${EVERSTEP_FIRST_START:-no}\" >&2; exit 7"});
  Accept();
  EXPECT_EQ(socket_.Await<wire::LastWords>()->text, "first start: 1\n");
  socket_.Send(wire::StartProcess{1});
  EXPECT_EQ(socket_.Await<wire::LastWords>()->text, "first start: no\n");
}

TEST_F(SupervisorTest, PassesOnExitCodeAndLastWords) {
  Run({"sh", "-c", "echo first >&2; echo 'what went wrong' >&2; exit 7"});
  Accept();
  const auto died = socket_.Await<wire::ProcessDied>();
  ASSERT_TRUE(died.has_value());
  EXPECT_EQ(died->cause, wire::DeathCause::kExited);
  EXPECT_EQ(died->exit_code, 7);
  const auto words = socket_.Await<wire::LastWords>();
  ASSERT_TRUE(words.has_value());
  EXPECT_EQ(words->text, "first\nwhat went wrong\n");
  EXPECT_EQ(words->exit_code, 7);
  // It waits for orders; being fenced is one.
  socket_.Send(wire::Fenced{"older"});
  EXPECT_EQ(ExitCode(), 1);
}

TEST_F(SupervisorTest, AStoppedProcessIsNotDead) {
  RunUntilReady("train");
  kill(static_cast<pid_t>(started_->pid), SIGSTOP);
  int beats = 0;
  while (beats < 8) {
    const auto message = socket_.Read();
    ASSERT_TRUE(message.has_value());
    ASSERT_FALSE(std::holds_alternative<wire::ProcessDied>(*message));
    if (std::holds_alternative<wire::Heartbeat>(*message)) ++beats;
  }
  kill(static_cast<pid_t>(started_->pid), SIGCONT);
  SendMembership(3, {1});
  EXPECT_TRUE(socket_.Await<wire::Regrouped>().has_value());
}

TEST_F(SupervisorTest, LosingRendezvousStopsNothing) {
  RunUntilReady("train");
  SendMembership(3, {1});
  ASSERT_TRUE(socket_.Await<wire::Regrouped>().has_value());
  socket_.Close();

  Accept();
  EXPECT_EQ(hello_->incarnation, 4);
  EXPECT_EQ(socket_.Await<wire::ProcessStarted>()->pid, started_->pid);
  const auto ready = socket_.Await<wire::Ready>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->endpoint, ready_->endpoint);
  EXPECT_EQ(ready->generation, 3u);
  EXPECT_EQ(socket_.Await<wire::Regrouped>()->generation, 3u);
}

TEST_F(SupervisorTest, ADeathWhileRendezvousIsAwayIsToldLater) {
  RunUntilReady("train");
  socket_.Close();
  kill(static_cast<pid_t>(started_->pid), SIGKILL);
  ASSERT_TRUE(AwaitTrue([&] { return !Exists(static_cast<pid_t>(started_->pid)); }));
  // The first connection may be from before the death was seen; then it is told on that one.
  Accept();
  EXPECT_EQ(socket_.Await<wire::ProcessDied>()->signal, SIGKILL);
  EXPECT_TRUE(socket_.Await<wire::LastWords>().has_value());
}

TEST_F(SupervisorTest, StopLetsTheProcessSave) {
  RunUntilReady("train");
  socket_.Send(wire::Stop{.grace_seconds = kPatienceSeconds, .reason = "suspended"});
  EXPECT_EQ(socket_.Await<wire::CheckpointSaved>()->path, "last");
  EXPECT_EQ(socket_.Await<wire::ProcessDied>()->exit_code, 130);
  EXPECT_EQ(ExitCode(), 1);
}

TEST_F(SupervisorTest, SigtermLetsTheProcessSave) {
  RunUntilReady("train");
  kill(supervisor_, SIGTERM);
  EXPECT_EQ(socket_.Await<wire::CheckpointSaved>()->path, "last");
  EXPECT_EQ(ExitCode(), 1);
}

TEST_F(SupervisorTest, AStubbornProcessIsKilledAfterTheGrace) {
  RunUntilReady("stubborn");
  socket_.Send(wire::Stop{.grace_seconds = 0.05, .reason = "suspended"});
  EXPECT_EQ(socket_.Await<wire::ProcessDied>()->signal, SIGKILL);
  EXPECT_EQ(ExitCode(), 1);
}

TEST_F(SupervisorTest, EndsWithZeroWhenTheProcessHasFinished) {
  RunUntilReady("finish");
  SendMembership(3, {1});
  EXPECT_EQ(socket_.Await<wire::Finished>()->output_dir, "out");
  while (true) {
    const auto message = socket_.Read();
    if (!message) break;
    ASSERT_FALSE(std::holds_alternative<wire::ProcessDied>(*message));
  }
  EXPECT_EQ(ExitCode(), 0);
}

TEST_F(SupervisorTest, AMemberThatLeavesWithoutAWordIsReported) {
  RunUntilReady("leave");
  SendMembership(3, {1});
  const auto died = socket_.Await<wire::ProcessDied>();
  ASSERT_TRUE(died.has_value());
  EXPECT_EQ(died->cause, wire::DeathCause::kExited);
  EXPECT_EQ(died->exit_code, 0);
}

TEST_F(SupervisorTest, EndsWithTheProcessesCodeAfterFatal) {
  RunUntilReady("fatal");
  SendMembership(3, {1});
  EXPECT_EQ(socket_.Await<wire::Fatal>()->reason, "loss is NaN");
  EXPECT_EQ(ExitCode(), 3);
}

TEST_F(SupervisorTest, AProgramThatKnowsNothingOfUsFinishesByItsExitCode) {
  processes_ = 2;
  Run({"sh", "-c",
       "test \"$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $NCCL_SOCKET_IFNAME\" = "
       "\"$((2 + LOCAL_RANK)) $LOCAL_RANK 4 2 lo\""});
  Accept();
  EXPECT_TRUE(socket_.Await<wire::Finished>().has_value());
  EXPECT_TRUE(socket_.Await<wire::Finished>().has_value());
  EXPECT_EQ(ExitCode(), 0);
}

TEST_F(SupervisorTest, AProgramThatCannotBeStartedIsReported) {
  Run({"/nowhere/program"});
  Accept();
  EXPECT_EQ(socket_.Await<wire::ProcessDied>()->cause, wire::DeathCause::kStartFailed);
  EXPECT_THAT(socket_.Await<wire::LastWords>()->text,
              HasSubstr("/nowhere/program: cannot be started"));
}

TEST_F(SupervisorTest, MarksTheLinesOfSeveralProcesses) {
  processes_ = 2;
  with_rendezvous_ = false;
  Run({"sh", "-c", "echo \"line of $RANK\" >&2"});
  EXPECT_EQ(ExitCode(), 0);
  EXPECT_THAT(Log(), HasSubstr("[rank 2] line of 2\n"));
  EXPECT_THAT(Log(), HasSubstr("[rank 3] line of 3\n"));
}

TEST_F(SupervisorTest, WithoutARendezvousOneFailureEndsAll) {
  processes_ = 2;
  with_rendezvous_ = false;
  Run({"sh", "-c", "test $LOCAL_RANK = 0 && exec sleep 1000; exit 4"});
  EXPECT_EQ(ExitCode(), 1);
}

TEST_F(SupervisorTest, ReapsOrphans) {
  RunUntilReady("orphan");
  const pid_t orphan = static_cast<pid_t>(std::stol(ready_->endpoint));
  ASSERT_TRUE(Exists(orphan));
  kill(orphan, SIGKILL);
  // A zombie still exists: it goes away only when somebody reaps it.
  EXPECT_TRUE(AwaitTrue([&] { return !Exists(orphan); }));
}

TEST_F(SupervisorTest, WhatADeadProcessHasStartedDoesNotOutliveIt) {
  RunUntilReady("orphan");
  const pid_t orphan = static_cast<pid_t>(std::stol(ready_->endpoint));
  kill(static_cast<pid_t>(started_->pid), SIGKILL);
  EXPECT_TRUE(AwaitTrue([&] { return !Exists(orphan); }));
}

TEST_F(SupervisorTest, ProcessesDieWithTheirSupervisor) {
  RunUntilReady("train");
  kill(supervisor_, SIGKILL);
  waitpid(std::exchange(supervisor_, -1), nullptr, 0);
  EXPECT_TRUE(AwaitTrue([&] { return !Exists(static_cast<pid_t>(started_->pid)); }));
}

TEST(SupervisorInstallTest, ItsCopyStartsElsewhere) {
  const TempDir directory;
  const std::string copy = directory.path() + "/supervisor";
  EXPECT_EQ(std::system((kSupervisor + " --install " + copy).c_str()), 0);
  EXPECT_EQ(std::system((copy + " --help > /dev/null").c_str()), 0);
  const int refused = std::system(
      (kSupervisor + " --install " + directory.path() + "/none/x 2> /dev/null").c_str());
  EXPECT_EQ(WEXITSTATUS(refused), 2);
}

}  // namespace
}  // namespace everstep
