// What GitOps tools make of a TrainingJob in each phase: kstatus (Flux, kpt), whose rules for kinds
// that it does not know are written down here, and Argo CD, whose Lua script is run. The objects
// are what Reconcile writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/files.h"
#include "operator/api/conditions.h"
#include "operator/core/reconcile.h"
#include "tests/cluster/test_cluster.h"
#include "tests/support/temp_dir.h"

namespace everstep {
namespace {

// ---- kstatus ----

std::string ConditionOf(const OrderedJson& object, const std::string& type) {
  const OrderedJson status = object.value("status", OrderedJson::object());
  for (const OrderedJson& condition : status.value("conditions", OrderedJson::array())) {
    if (condition["type"] == type) return condition["status"];
  }
  return "";
}

// In this order: deletion, generation, Reconciling, Stalled, Ready. What says nothing is current.
std::string KstatusVerdict(const OrderedJson& object) {
  const OrderedJson& metadata = object["metadata"];
  if (metadata.contains("deletionTimestamp")) return "Terminating";
  const OrderedJson status = object.value("status", OrderedJson::object());
  if (status.contains("observedGeneration") &&
      status["observedGeneration"] != metadata["generation"]) {
    return "InProgress";
  }
  if (ConditionOf(object, "Reconciling") == "True") return "InProgress";
  if (ConditionOf(object, "Stalled") == "True") return "Failed";
  const std::string ready = ConditionOf(object, "Ready");
  return ready.empty() || ready == "True" ? "Current" : "InProgress";
}

// ---- Argo CD ----

std::string LuaText(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '\n') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// A table as Argo CD gives it: without null.
std::string LuaValue(const OrderedJson& value) {
  if (value.is_string()) return LuaText(value.get<std::string>());
  if (!value.is_structured()) return value.is_null() ? "nil" : DumpJson(value);
  std::string table = "{";
  if (value.is_array()) {
    for (const OrderedJson& entry : value) table += LuaValue(entry) + ",";
  } else {
    for (const auto& [key, entry] : value.items()) {
      table += "[" + LuaText(key) + "]=" + LuaValue(entry) + ",";
    }
  }
  return table + "}";
}

// "Healthy: message"
std::string ArgoVerdict(const OrderedJson& object) {
  const TempDir directory;
  const std::string program =
      "obj = " + LuaValue(object) + "\nlocal health = dofile(" +
      LuaText(std::string(EVERSTEP_SOURCE_DIR) + "/docs/argocd/health.lua") +
      ")\nio.write(health.status, ': ', health.message)\n";
  EXPECT_TRUE(WriteFileAtomically(directory / "check.lua", program));
  const auto run = testing::RunCommand({"lua5.1", directory / "check.lua"});
  EXPECT_TRUE(run.ok()) << run.Text();
  return run.output;
}

// ---- Jobs ----

struct Situation {
  const char* name;
  OrderedJson status;  // before the operator looks
  bool suspend = false;
  bool has_claim = true;
  bool running = false;  // both pods
  const char* kstatus;
  const char* argo;

  friend void PrintTo(const Situation& situation, std::ostream* out) { *out << situation.name; }
};

OrderedJson Reconciled(const Situation& situation) {
  Observed observed;
  observed.job.name = "job";
  observed.job.generation = 3;
  observed.job.spec.replicas = 2;
  observed.job.spec.train = {{"stage", "sft"}};
  observed.job.spec.suspend = situation.suspend;
  observed.status = situation.status;
  observed.has_service = observed.has_config_map = observed.has_network_policy = true;
  if (situation.has_claim) observed.claim = ClaimView{};
  for (int replica = 0; replica < 2 && situation.running; ++replica) {
    PodView pod;
    pod.name = "job-" + std::to_string(replica) + "-0";
    pod.replica = replica;
    pod.phase = PodPhase::kRunning;
    observed.pods.push_back(pod);
  }
  const Plan plan = Reconcile(observed, WallTime{std::chrono::seconds(1000)});
  return {{"metadata", {{"name", "job"}, {"generation", 3}}}, {"status", plan.status}};
}

OrderedJson Training(const char* phase) {
  return {{"phase", phase},
          {"startUnixSeconds", 900},
          {"attempt", {{"generation", 2}, {"worldSize", 2}}}};
}

OrderedJson With(OrderedJson status, const char* key, OrderedJson value) {
  status[key] = std::move(value);
  return status;
}

std::vector<Situation> Situations() {
  return {
      {.name = "New", .status = nullptr, .kstatus = "InProgress", .argo = "Progressing: "},
      {.name = "WithoutItsVolume",
       .status = nullptr,
       .has_claim = false,
       .kstatus = "InProgress",
       .argo = "Progressing: PersistentVolumeClaim 'job' does not exist"},
      {.name = "Running",
       .status = Training("Running"),
       .running = true,
       .kstatus = "Current",
       .argo = "Healthy: "},
      {.name = "RunningWithoutCheckpoints",
       .status = With(Training("Running"), "checkpointWarning", "no space left"),
       .running = true,
       .kstatus = "Current",
       .argo = "Degraded: no space left"},
      {.name = "Recovering",
       .status = Training("Recovering"),
       .running = true,
       .kstatus = "InProgress",
       .argo = "Progressing: recovers from a failure"},
      {.name = "Suspended",
       .status = Training("Running"),
       .suspend = true,
       .kstatus = "InProgress",
       .argo = "Suspended: spec.suspend is true"},
      {.name = "Succeeded",
       .status = With(Training("Running"), "finished", {{"step", 12}}),
       .kstatus = "Current",
       .argo = "Healthy: all 12 steps are done"},
      {.name = "Failed",
       .status = With(Training("Running"), "failure", "step 4 failed 4 times in a row"),
       .kstatus = "Failed",
       .argo = "Degraded: step 4 failed 4 times in a row"},
  };
}

class GitOpsTest : public ::testing::TestWithParam<Situation> {};

TEST_P(GitOpsTest, Kstatus) {
  const OrderedJson object = Reconciled(GetParam());
  EXPECT_EQ(KstatusVerdict(object), GetParam().kstatus) << DumpJson(object, 2);
}

TEST_P(GitOpsTest, ArgoCd) {
  const OrderedJson object = Reconciled(GetParam());
  EXPECT_THAT(ArgoVerdict(object), ::testing::StartsWith(GetParam().argo)) << DumpJson(object, 2);
}

// A change that the operator has not seen is never taken for done.
TEST_P(GitOpsTest, AChangeIsInProgressUntilItIsSeen) {
  OrderedJson object = Reconciled(GetParam());
  object["metadata"]["generation"] = 4;
  EXPECT_EQ(KstatusVerdict(object), "InProgress");
  EXPECT_EQ(ArgoVerdict(object), "Progressing: the operator has not seen the newest change yet");
}

INSTANTIATE_TEST_SUITE_P(Phases, GitOpsTest, ::testing::ValuesIn(Situations()),
                         [](const auto& info) { return std::string(info.param.name); });

// The definition's default: without it kstatus takes an object without a status for current.
TEST(UnseenJobTest, AJobThatNobodyHasSeenIsInProgress) {
  const OrderedJson object = {{"metadata", {{"name", "job"}, {"generation", 1}}},
                              {"status", {{"observedGeneration", -1}}}};
  EXPECT_EQ(KstatusVerdict(object), "InProgress");
  EXPECT_EQ(ArgoVerdict(object), "Progressing: the operator has not seen it yet");
}

}  // namespace
}  // namespace everstep
