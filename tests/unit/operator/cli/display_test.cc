#include "operator/cli/display.h"

#include <gtest/gtest.h>

#include "common/log.h"
#include "common/strings.h"
#include "tests/support/captured_output.h"

namespace everstep {
namespace {

const wire::Progress kThirdStep{.generation = 2,
                                .step = 3,
                                .total_steps = 12,
                                .loss = 1.23456,
                                .grad_norm = 0.5,
                                .learning_rate = 1e-4,
                                .epoch = 0.25,
                                .tokens_per_second = 511.6,
                                .step_seconds = 10};

Incident KilledRank() {
  Incident incident;
  incident.id = 1;
  incident.cause = IncidentCause::kSignaled;
  incident.rank = 2;
  incident.pod = "job-2-0";
  incident.node = "local";
  incident.signal = 9;
  incident.generation_before = 1;
  incident.interrupted_step = 7;
  incident.stages.detect_seconds = 0.0312;
  return incident;
}
const std::string kDecision = "rank 2 is restarted in place (restart 1 of 10 within 6:00:00)";

class DisplayTest : public testing::Test {
 protected:
  ~DisplayTest() override { ConfigureLog({}); }

  Output Shown(DisplayMode mode, const std::function<void(Display&)>& act) {
    Display display(mode);
    return CaptureOutput([&] { act(display); });
  }
  // On standard output; standard error stays empty.
  std::string Plain(const std::function<void(Display&)>& act) {
    const Output output = Shown(DisplayMode::kPlain, act);
    EXPECT_EQ(output.err, "");
    return output.out;
  }
  // JSON lines without their time, a line each.
  std::string JsonLines(const std::function<void(Display&)>& act) {
    ConfigureLog({.format = LogFormat::kJson, .component = ""});
    const Output output = Shown(DisplayMode::kJson, act);
    EXPECT_EQ(output.out, "");
    std::string lines;
    for (const std::string& line : SplitAndTrim(output.err, '\n')) {
      OrderedJson json = ParseOrderedJson(line, "line").value_or(OrderedJson::object());
      EXPECT_EQ(json.erase("time"), 1u) << line;
      lines += DumpJson(json) + "\n";
    }
    return lines;
  }
  // Everything that can be said of a job that goes on.
  static void SayAll(Display& display) {
    display.Line("a line");
    display.OnPhase("job", {{"phase", "Running"}});
    display.OnProgress("job", kThirdStep);
    display.OnCheckpoint("job",
                         {.step = 3, .path = "out/checkpoint-3", .seconds = 0.25, .warning = ""});
    Incident incident = KilledRank();
    incident.action = kDecision;
    display.OnIncident("job", incident);
    display.OnMembership("job", {.generation = 2, .members = {{}, {}, {}}}, "rank 2 is lost");
    display.ShowResult("job", {{"phase", "Succeeded"}, {"message", "done"}}, "runs/job");
  }
};

TEST_F(DisplayTest, APipeGetsPlainLines) {
  EXPECT_EQ(Plain(SayAll),
            "a line\n"
            "job: Running\n"
            "step 3/12  loss 1.2346  512 tokens/s  ETA 0:01:30\n"
            "checkpoint of step 3 saved in 250.0 ms\n"
            "! rank 2 (pod job-2-0) was killed by SIGKILL; " +
                kDecision +
                "\n"
                "generation 2: 3 members (rank 2 is lost)\n"
                "job succeeded: done\n");
}

TEST_F(DisplayTest, QuietIsQuiet) {
  const Output output = Shown(DisplayMode::kQuiet, SayAll);
  EXPECT_EQ(output.out, "");
  EXPECT_EQ(output.err, "");
}

TEST_F(DisplayTest, ProgramsGetJsonLines) {
  EXPECT_EQ(
      JsonLines(SayAll),
      R"json({"level":"info","message":"a line"}
{"level":"info","message":"phase","job":"job","phase":"Running","detail":""}
{"level":"info","message":"step","job":"job","step":3,"total_steps":12,"loss":1.23456,)json"
      R"json("grad_norm":0.5,"learning_rate":0.0001,"epoch":0.25,"tokens_per_second":511.6,)json"
      R"json("generation":2}
{"level":"info","message":"checkpoint","job":"job","step":3,"path":"out/checkpoint-3",)json"
      R"json("seconds":0.25,"warning":""}
{"level":"info","message":"incident","job":"job","incident":{"action":"rank 2 is restarted )json"
      R"json(in place (restart 1 of 10 within 6:00:00)","cause":"signaled","closed":false,)json"
      R"json("generation":1,"generationAfter":0,"id":1,"interruptedStep":7,"lostSteps":0,)json"
      R"json("node":"local","pod":"job-2-0","rank":2,"seconds":{"detect":0.0312},"signal":9}}
{"level":"info","message":"membership","job":"job","generation":2,"members":3,)json"
      R"json("reason":"rank 2 is lost"}
{"level":"info","message":"result","job":"job","phase":"Succeeded","detail":"done"}
)json");
}

TEST_F(DisplayTest, ATerminalHasABarThatMakesWayForLines) {
  const Output output = Shown(DisplayMode::kTerminal, [](Display& display) {
    display.OnProgress("job", kThirdStep);
    display.Line("a line");
    display.Line("another");
    display.OnProgress("job", {.step = 12, .total_steps = 12, .loss = 1, .step_seconds = 10});
  });
  EXPECT_EQ(output.out, "a line\nanother\n");
  EXPECT_EQ(output.err,
            "\r\033[K[######..................] "
            "step 3/12  loss 1.2346  512 tokens/s  ETA 0:01:30"
            "\r\033[K"
            "\r\033[K[########################] "
            "step 12/12  loss 1.0000  0 tokens/s  ETA 0:00:00");
}

TEST_F(DisplayTest, ABarMakesWayForAFailure) {
  const Output output = Shown(DisplayMode::kTerminal, [](Display& display) {
    display.OnProgress("job", {.step = 0, .total_steps = 0});
    display.ShowResult("job", {{"phase", "Failed"}, {"message", "no more"}}, "runs/job");
  });
  EXPECT_EQ(output.err,
            "\r\033[K[........................] step 0/0  loss 0.0000  0 tokens/s  ETA 0:00:00"
            "\r\033[Kjob failed: no more\nlogs: runs/job/logs\n");
}

TEST_F(DisplayTest, APhaseIsSaidWhenItChanges) {
  EXPECT_EQ(Plain([](Display& display) {
              display.OnPhase("job", {{"phase", "Pending"}});
              display.OnPhase("job", {{"phase", "Running"}, {"progress", {{"step", 1}}}});
              display.OnPhase("job", {{"phase", "Running"}, {"progress", {{"step", 2}}}});
              display.OnPhase("job", {{"phase", "Recovering"}});
              display.OnPhase("job", {{"phase", "Running"}});
            }),
            "job: Pending\njob: Running\njob: Recovering\njob: Running\n");
}

TEST_F(DisplayTest, ACheckpointThatCannotBeSavedIsAWarning) {
  EXPECT_EQ(Plain([](Display& display) {
              display.OnCheckpoint("job", {.step = 40, .path = "", .seconds = 1.5, .warning = ""});
              display.OnCheckpoint("job",
                                   {.step = 50, .path = "", .warning = "no space on /checkpoints"});
            }),
            "checkpoint of step 40 saved in 1.50 s\n"
            "warning: checkpoint of step 50: no space on /checkpoints\n");
}

// ---- Incidents ----

TEST_F(DisplayTest, AnIncidentIsSaidWhenItHappensAndWithItsFiguresWhenItIsOver) {
  EXPECT_EQ(Plain([](Display& display) {
              Incident incident = KilledRank();
              display.OnIncident("job", incident);  // not decided yet
              incident.action = kDecision;
              display.OnIncident("job", incident);
              incident.stages.regroup_seconds = 0.0071;
              display.OnIncident("job", incident);
              incident.stages.redo_seconds = 0.4;
              incident.stages.restart_seconds = 12.345;
              incident.lost_steps = 1;
              display.OnIncident("job", incident);
              incident.stages.rejoin_seconds = 0.25;
              incident.closed = true;
              display.OnIncident("job", incident);
              display.OnIncident("job", incident);
            }),
            "! rank 2 (pod job-2-0) was killed by SIGKILL; " + kDecision +
                "\n"
                "! recovered from: rank 2 (pod job-2-0) was killed by SIGKILL: detected in "
                "31.2 ms, regrouped in 7.1 ms, next step after 400.0 ms, restarted in 12.35 s, "
                "rejoined in 250.0 ms; lost steps 1\n");
}

TEST_F(DisplayTest, IncidentsAreSaidEachOnItsOwn) {
  EXPECT_EQ(Plain([](Display& display) {
              Incident incident = KilledRank();
              incident.action = "A";
              display.OnIncident("job", incident);
              incident.id = 2;
              incident.rank = 0;
              incident.pod = "job-0-0";
              incident.cause = IncidentCause::kVanished;
              incident.further_ranks = {1};
              incident.action = "B";
              display.OnIncident("job", incident);
            }),
            "! rank 2 (pod job-2-0) was killed by SIGKILL; A\n"
            "! rank 0 (pod job-0-0) vanished with its supervisor, 1 more with it; B\n");
}

TEST_F(DisplayTest, WhatEndsWithTheJobIsNotSaidToBeRecoveredFrom) {
  EXPECT_EQ(Plain([](Display& display) {
              Incident incident = KilledRank();
              incident.cause = IncidentCause::kExited;
              incident.exit_code = 2;
              incident.closed = true;
              display.OnIncident("job", incident);
              incident.id = 2;
              incident.stages = {};
              display.OnIncident("job", incident);
            }),
            "! not recovered from: rank 2 (pod job-2-0) exited with code 2: detected in 31.2 ms; "
            "lost steps 0\n"
            "! not recovered from: rank 2 (pod job-2-0) exited with code 2; lost steps 0\n");
}

// ---- Results ----

const OrderedJson kSucceeded{{"phase", "Succeeded"},
                             {"message", "all 12 steps are done"},
                             {"finished", {{"step", 12}, {"outputDir", "saves/out"}}},
                             {"incidents",
                              {{{"id", 1},
                                {"cause", "signaled"},
                                {"rank", 2},
                                {"lostSteps", 1},
                                {"seconds", {{"detect", 0.0312}, {"regroup", 0.0071}}},
                                {"at", "2026-11-30T12:00:00Z"}}}}};

TEST_F(DisplayTest, ASuccessSaysWhereItsResultsAreAndWhatHappened) {
  EXPECT_EQ(Plain([](Display& display) { display.ShowResult("job", kSucceeded, "runs/job"); }),
            "job succeeded: all 12 steps are done\n"
            "results: saves/out\n"
            "incidents:\n"
            "  2026-11-30T12:00:00Z  rank 2  signaled  lost steps 1  seconds "
            "{\"detect\":0.0312,\"regroup\":0.0071}\n");
}

TEST_F(DisplayTest, AProgramOfOnesOwnHasNoResultsToName) {
  EXPECT_EQ(Plain([](Display& display) {
              display.ShowResult("job",
                                 {{"phase", "Succeeded"},
                                  {"message", "all 0 steps are done"},
                                  {"finished", {{"step", 0}}}},
                                 "runs/job");
            }),
            "job succeeded: all 0 steps are done\n");
}

TEST_F(DisplayTest, AFailureIsSaidOnStandardErrorEvenWhenQuiet) {
  for (const DisplayMode mode : {DisplayMode::kPlain, DisplayMode::kQuiet}) {
    const Output output = Shown(mode, [](Display& display) {
      display.ShowResult(
          "job", {{"phase", "Failed"}, {"message", "rank 3 exited with code 2"}, {"incidents", {}}},
          "runs/job");
    });
    EXPECT_EQ(output.out, "");
    EXPECT_EQ(output.err, "job failed: rank 3 exited with code 2\nlogs: runs/job/logs\n");
  }
}

TEST_F(DisplayTest, AFailureIsAJsonLineForPrograms) {
  EXPECT_EQ(
      JsonLines([](Display& display) {
        display.ShowResult("job", {{"phase", "Failed"}, {"message", "no \"more\""}}, "runs/job");
      }),
      R"({"level":"info","message":"result","job":"job","phase":"Failed","detail":"no \"more\""})"
      "\n");
}

TEST(FormatSecondsTest, BelowASecondItIsMilliseconds) {
  EXPECT_EQ(FormatSeconds(0), "0.0 ms");
  EXPECT_EQ(FormatSeconds(0.01234), "12.3 ms");
  EXPECT_EQ(FormatSeconds(0.999), "999.0 ms");
  EXPECT_EQ(FormatSeconds(1), "1.00 s");
  EXPECT_EQ(FormatSeconds(61.5), "61.50 s");
}

}  // namespace
}  // namespace everstep
