#include "common/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/strings.h"
#include "tests/support/captured_output.h"

namespace everstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::MatchesRegex;

class LogTest : public testing::Test {
 protected:
  LogTest() { ForgetEnvironment(); }
  ~LogTest() override {
    ForgetEnvironment();
    ConfigureLog({});
  }
  static void ForgetEnvironment() {
    unsetenv("EVERSTEP_LOG_FORMAT");
    unsetenv("EVERSTEP_LOG_LEVEL");
  }

  // What is logged, a line each, without the time, whose form is checked.
  static std::vector<std::string> Logged(const std::function<void()>& act) {
    const Output output = CaptureOutput(act);
    EXPECT_EQ(output.out, "");
    std::vector<std::string> lines = SplitAndTrim(output.err, '\n');
    constexpr char kTime[] = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z";
    for (std::string& line : lines) {
      EXPECT_THAT(line.substr(0, 20), MatchesRegex(kTime)) << line;
      line.erase(0, 21);
    }
    return lines;
  }
  // The same for JSON lines.
  static std::vector<OrderedJson> LoggedJson(const std::function<void()>& act) {
    std::vector<OrderedJson> lines;
    for (const std::string& line : SplitAndTrim(CaptureOutput(act).err, '\n')) {
      OrderedJson json = ParseOrderedJson(line, "log").value_or(OrderedJson::object());
      EXPECT_EQ(json.value("time", "").size(), 20u) << line;
      json.erase("time");
      lines.push_back(std::move(json));
    }
    return lines;
  }
};

TEST_F(LogTest, ALineOfTextSaysWhatHappenedAndWithWhat) {
  ConfigureLog({.component = "worker"});
  EXPECT_THAT(Logged([] {
                LogInfo("regrouped", {{"generation", 4},
                                      {"seconds", 0.25},
                                      {"planned", false},
                                      {"ranks", {0, 2}},
                                      {"pod", "job-0-0"}});
              }),
              ElementsAre("[worker] regrouped generation=4 seconds=0.25 planned=false "
                          "ranks=[0,2] pod=job-0-0"));
}

TEST_F(LogTest, ALevelThatNeedsAttentionIsSaid) {
  ConfigureLog({.level = LogLevel::kDebug, .component = "worker"});
  EXPECT_THAT(
      Logged([] {
        LogDebug("a");
        LogInfo("b");
        LogWarning("c");
        LogError("d");
      }),
      ElementsAre("debug [worker] a", "[worker] b", "warning [worker] c", "error [worker] d"));
}

TEST_F(LogTest, NothingBelowTheLevelIsSaid) {
  ConfigureLog({.level = LogLevel::kWarning, .component = ""});
  EXPECT_THAT(Logged([] {
                LogDebug("a");
                LogInfo("b");
                LogWarning("c");
                LogError("d");
              }),
              ElementsAre("warning c", "error d"));
  ConfigureLog({});
  EXPECT_THAT(Logged([] { LogDebug("a"); }), IsEmpty());
}

TEST_F(LogTest, AValueStaysOnItsLine) {
  EXPECT_THAT(Logged([] {
                LogInfo("died", {{"words", "one\n\"two\"\t"}, {"reason", "it said \"no\""}});
              }),
              ElementsAre(R"(died words="one\n\"two\"\t" reason=it said "no")"));
}

TEST_F(LogTest, BracesAreNoFormat) {
  EXPECT_THAT(Logged([] { LogInfo("{} %s {0}", {{"{}", "{"}}); }), ElementsAre("{} %s {0} {}={"));
}

TEST_F(LogTest, AJsonLineHasItsFieldsInOrder) {
  ConfigureLog({.format = LogFormat::kJson, .component = "supervisor"});
  const auto lines = LoggedJson([] {
    LogWarning("process died", {{"rank", 1}, {"cause", "signaled"}, {"signal", nullptr}});
  });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(DumpJson(lines[0]),
            R"({"level":"warning","component":"supervisor","message":"process died","rank":1,)"
            R"("cause":"signaled","signal":null})");
}

TEST_F(LogTest, AJsonLineIsOneLineWhateverIsInIt) {
  ConfigureLog({.format = LogFormat::kJson, .component = ""});
  const auto lines = LoggedJson([] {
    LogError("a \"b\"\nc\\", {{"words", "x\ny\x01"}, {"bytes", "\xff"}});
  });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], (OrderedJson{{"level", "error"},
                                   {"message", "a \"b\"\nc\\"},
                                   {"words", "x\ny\x01"},
                                   {"bytes", "\xef\xbf\xbd"}}));
}

TEST_F(LogTest, TheEnvironmentChoosesFormatAndLevel) {
  setenv("EVERSTEP_LOG_FORMAT", "json", 1);
  setenv("EVERSTEP_LOG_LEVEL", "debug", 1);
  LogOptions options = LogOptionsFromEnvironment("worker");
  EXPECT_EQ(options.format, LogFormat::kJson);
  EXPECT_EQ(options.level, LogLevel::kDebug);
  EXPECT_EQ(options.component, "worker");

  setenv("EVERSTEP_LOG_LEVEL", "error", 1);
  EXPECT_EQ(LogOptionsFromEnvironment("").level, LogLevel::kError);
}

TEST_F(LogTest, WithoutAUsableEnvironmentItIsTextFromInfoOn) {
  for (const char* useless : {"", "loud"}) {
    setenv("EVERSTEP_LOG_FORMAT", useless, 1);
    setenv("EVERSTEP_LOG_LEVEL", useless, 1);
    const LogOptions options = LogOptionsFromEnvironment("");
    EXPECT_EQ(options.format, LogFormat::kText);
    EXPECT_EQ(options.level, LogLevel::kInfo);
  }
  ForgetEnvironment();
  EXPECT_EQ(LogOptionsFromEnvironment("").level, LogLevel::kInfo);
}

}  // namespace
}  // namespace everstep
