// The supervisor's parts that need no processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "worker/supervisor/detector.h"
#include "worker/supervisor/network_interface.h"
#include "worker/supervisor/options.h"
#include "worker/supervisor/stderr_tail.h"

namespace everstep {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// ---- Detector ----

std::string Stat(char state, unsigned flags, int exit_code) {
  std::string text = "42 (a ) strange) name) ";
  text += state;
  text += " 1 42 42 0 -1 " + std::to_string(flags);
  for (int field = 10; field < 52; ++field) text += " 7";
  return text + " " + std::to_string(exit_code) + "\n";
}

TEST(DetectorTest, ReadsTheStateBehindAnyName) {
  Evidence evidence;
  ParseProcStat(Stat('T', 0x400000, 0), evidence);
  EXPECT_EQ(evidence.state, 'T');
  EXPECT_FALSE(evidence.exiting);
  EXPECT_FALSE(evidence.wait_status.has_value());
}

TEST(DetectorTest, ReadsTheExitStatusOfAnExitingProcess) {
  Evidence evidence;
  ParseProcStat(Stat('D', 0x400004, SIGKILL), evidence);
  EXPECT_TRUE(evidence.exiting);
  EXPECT_EQ(evidence.wait_status, SIGKILL);
  // The code is set a moment after the flag: 0 says nothing yet.
  Evidence early;
  ParseProcStat(Stat('R', 0x4, 0), early);
  EXPECT_FALSE(early.wait_status.has_value());
}

TEST(DetectorTest, SeesAPendingSigkillOfThreadOrProcess) {
  for (const char* line : {"SigPnd:\t0000000000000100", "ShdPnd:\t0000000000000100"}) {
    Evidence evidence;
    ParseProcStatus(std::string("Name:\tx\n") + line + "\nSigBlk:\t0000000000000000\n", evidence);
    EXPECT_TRUE(evidence.kill_pending) << line;
  }
  Evidence other;
  ParseProcStatus(
      "SigPnd:\t0000000000004000\nShdPnd:\t0000000000000000\nSigBlk:\t0000000000000100\n", other);
  EXPECT_FALSE(other.kill_pending);
  ParseProcStatus("CoreDumping:\t1\n", other);
  EXPECT_TRUE(other.core_dumping);
}

TEST(DetectorTest, BrokenTextIsNoEvidence) {
  for (const char* text : {"", "42", "42 (x", "42 (x)", "42 (x) R"}) {
    Evidence evidence;
    ParseProcStat(text, evidence);
    ParseProcStatus(text, evidence);
    EXPECT_EQ(Judge({}, TimePoint{}, evidence), Verdict::kAlive) << text;
  }
}

TEST(DetectorTest, SilenceIsASuspicionAndNoMore) {
  const TimePoint now{std::chrono::hours(1)};
  const Beat fresh{.beats = 9, .time = now - milliseconds(5), .phase = ""};
  const Beat stale{.beats = 9, .time = now - std::chrono::minutes(9), .phase = ""};
  EXPECT_FALSE(IsSuspect(fresh, now));
  EXPECT_TRUE(IsSuspect(stale, now));
  EXPECT_FALSE(IsSuspect(Beat{}, now)) << "it never beat: there is nothing to miss";
  for (char state : {'R', 'S', 'D', 'T', 't'}) {
    Evidence alive;
    alive.state = state;
    EXPECT_EQ(Judge(stale, now, alive), Verdict::kSuspect) << state;
    EXPECT_EQ(Judge(fresh, now, alive), Verdict::kAlive) << state;
  }
}

TEST(DetectorTest, TheKernelsWordDecides) {
  const TimePoint now{std::chrono::hours(1)};
  std::vector<Evidence> dead(6);
  dead[0].gone = true;
  dead[1].state = 'Z';
  dead[2].state = 'X';
  dead[3].exiting = true;
  dead[4].kill_pending = true;
  dead[5].core_dumping = true;
  for (const Evidence& evidence : dead) EXPECT_EQ(Judge({}, now, evidence), Verdict::kDead);
}

TEST(DetectorTest, ReadsThisProcessAndMissesOneThatIsNot) {
  const Evidence self = ReadEvidence(getpid());
  EXPECT_FALSE(self.gone);
  EXPECT_EQ(self.state, 'R');
  EXPECT_FALSE(self.exiting);
  EXPECT_FALSE(self.kill_pending);
  EXPECT_TRUE(ReadEvidence(0x3fffffff).gone);
}

// ---- Standard error ----

TEST(StderrTailTest, PassesWholeLinesOnWithThePrefix) {
  StderrTail tail("[rank 2] ");
  EXPECT_EQ(tail.Append("one\ntw"), "[rank 2] one\n");
  EXPECT_EQ(tail.Append("o\n\nthree"), "[rank 2] two\n[rank 2] \n");
  EXPECT_EQ(tail.Rest(), "[rank 2] three\n");
  EXPECT_EQ(tail.Rest(), "");
  EXPECT_EQ(tail.LastWords(), "one\ntwo\n\nthree");
}

TEST(StderrTailTest, KeepsTheEndFromTheStartOfALine) {
  StderrTail tail("");
  std::string all;
  for (int i = 0; i < 5000; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    all += line;
    EXPECT_EQ(tail.Append(line), line);
  }
  const std::string words = tail.LastWords();
  EXPECT_LE(words.size(), wire::kLastWordsBytes);
  EXPECT_GT(words.size(), wire::kLastWordsBytes - 20);
  EXPECT_TRUE(words.starts_with("line "));
  EXPECT_TRUE(all.ends_with(words));
}

TEST(StderrTailTest, ALineWithoutEndIsBounded) {
  StderrTail tail("");
  size_t passed = 0;
  for (int i = 0; i < 100; ++i) passed += tail.Append(std::string(1000, 'x')).size();
  EXPECT_GT(passed, 100'000 - StderrTail::kMaxLineBytes);
  EXPECT_EQ(tail.LastWords(), std::string(wire::kLastWordsBytes, 'x'));
}

// ---- Options ----

TEST(SupervisorOptionsTest, ReadsThePodsEnvironment) {
  const auto options = ReadSupervisorOptions({{"EVERSTEP_JOB", "j"},
                                              {"EVERSTEP_REPLICA", "2"},
                                              {"EVERSTEP_PROCESSES", "4"},
                                              {"WORLD_SIZE", "16"},
                                              {"EVERSTEP_RENDEZVOUS", "[::1]:700"},
                                              {"EVERSTEP_DIE_WITH_PARENT", "77"}},
                                             {}, "/bin/default");
  ASSERT_TRUE(options.has_value()) << options.error().message;
  EXPECT_EQ(options->rendezvous_host, "::1");
  EXPECT_EQ(options->rendezvous_port, "700");
  EXPECT_EQ(options->command, std::vector<std::string>{"/bin/default"});
  EXPECT_EQ(options->parent_pid, 77);
  const Environment process = ProcessEnvironment(*options, 3);
  EXPECT_EQ(process.at("RANK"), "11");
  EXPECT_EQ(process.at("LOCAL_RANK"), "3");
  EXPECT_EQ(process.at("WORLD_SIZE"), "16");
  EXPECT_EQ(process.at("LOCAL_WORLD_SIZE"), "4");
  EXPECT_EQ(process.at("NODE_RANK"), "2");
  EXPECT_EQ(process.at("NNODES"), "4");
  EXPECT_EQ(process.at("NPROC_PER_NODE"), "4");
  EXPECT_FALSE(process.contains("EVERSTEP_DIE_WITH_PARENT"));
}

TEST(SupervisorOptionsTest, NamesEverythingThatIsWrong) {
  const auto options = ReadSupervisorOptions({{"EVERSTEP_REPLICA", "-1"},
                                              {"EVERSTEP_PROCESSES", "many"},
                                              {"WORLD_SIZE", "0"},
                                              {"EVERSTEP_RENDEZVOUS", "host"}},
                                             {}, "x");
  ASSERT_FALSE(options.has_value());
  for (const char* name :
       {"EVERSTEP_REPLICA: must be", "EVERSTEP_PROCESSES: must be a number from 1", "is 'many'",
        "WORLD_SIZE: must be", "EVERSTEP_RENDEZVOUS: must be host:port, is 'host'"}) {
    EXPECT_THAT(options.error().message, HasSubstr(name));
  }
}

// ---- Network interface ----

TEST(NetworkInterfaceTest, LoopbackAddressesAreTheLoopbacks) {
  EXPECT_EQ(*InterfaceTowards("127.0.0.1", 1), "lo");
  EXPECT_EQ(*InterfaceTowards("127.0.3.1", 1), "lo");
  EXPECT_EQ(*InterfaceWith("127.0.0.1"), "lo");
}

TEST(NetworkInterfaceTest, AnAddressThatIsNoneIsNamed) {
  const auto name = InterfaceTowards("300.1.2.3.invalid", 1);
  ASSERT_FALSE(name.has_value());
  EXPECT_THAT(name.error().message, HasSubstr("MASTER_ADDR=300.1.2.3.invalid"));
}

}  // namespace
}  // namespace everstep
