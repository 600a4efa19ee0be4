// Runs every row of tests/scenarios/*.yaml; README.md there says what a row is.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "common/files.h"
#include "operator/api/document.h"
#include "operator/core/reconcile.h"
#include "operator/core/recovery.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

WallTime At(int64_t unix_seconds) { return WallTime{std::chrono::seconds(unix_seconds)}; }

TrainingJob JobOf(const OrderedJson& row) {
  OrderedJson object = {{"apiVersion", "everstep.dev/v1alpha1"},
                        {"kind", "TrainingJob"},
                        {"metadata", {{"name", "job"}, {"uid", "u-1"}}},
                        {"spec", {{"train", {{"stage", "sft"}}}}}};
  object["metadata"]["generation"] = row.value("generation", 1);
  if (row.contains("spec")) object["spec"].merge_patch(row["spec"]);
  const auto job = TrainingJobFromJson(object);
  EXPECT_TRUE(job.has_value()) << job.error().message;
  return job ? *job : TrainingJob{};
}

PodPhase PhaseOf(const std::string& text) {
  if (text == "Running") return PodPhase::kRunning;
  if (text == "Succeeded") return PodPhase::kSucceeded;
  if (text == "Failed") return PodPhase::kFailed;
  EXPECT_EQ(text, "Pending");
  return PodPhase::kPending;
}

PodView PodOf(const OrderedJson& json) {
  PodView pod;
  pod.replica = json.value("replica", 0);
  pod.incarnation = json.value("incarnation", 0);
  pod.name = "job-" + std::to_string(pod.replica) + "-" + std::to_string(pod.incarnation);
  pod.phase = PhaseOf(json.value("phase", "Running"));
  pod.deleting = json.value("deleting", false);
  pod.exit_code = json.value("exitCode", 0);
  pod.message = json.value("message", "");
  pod.disrupted = json.value("disrupted", false);
  pod.node = json.value("node", "");
  pod.waiting = json.value("waiting", "");
  if (json.contains("goneBy")) pod.gone_by_unix_seconds = json["goneBy"].get<int64_t>();
  if (json.contains("endedAt")) pod.ended_unix_seconds = json["endedAt"].get<int64_t>();
  return pod;
}

Observed ObservedOf(const OrderedJson& row) {
  Observed observed;
  observed.job = JobOf(row);
  observed.status = row.value("status", OrderedJson());
  for (const OrderedJson& pod : row.value("pods", OrderedJson::array())) {
    observed.pods.push_back(PodOf(pod));
  }
  observed.has_service = observed.has_config_map = observed.has_network_policy =
      row.value("objects", true);
  const OrderedJson claim = row.value("claim", OrderedJson::object());
  if (claim.is_object()) observed.claim = ClaimView{claim.value("oneNodeOnly", false)};
  observed.pod_context.rendezvous = "127.0.0.1:4000";
  observed.pod_context.token = "secret";
  observed.default_threads = 2;
  return observed;
}

std::string Describe(const PlannedAction& action) {
  if (const auto* create = std::get_if<CreateObject>(&action)) {
    return "create " + create->object["kind"].get<std::string>() + " " +
           create->object["metadata"]["name"].get<std::string>();
  }
  if (const auto* erase = std::get_if<DeletePod>(&action)) return "delete " + erase->name;
  if (const auto* fence = std::get_if<FenceReplica>(&action)) {
    return "fence " + std::to_string(fence->replica) + " " + std::to_string(fence->incarnation);
  }
  if (std::holds_alternative<DeleteJob>(action)) return "delete the job";
  return "stop: " + std::get<StopProcesses>(action).reason;
}

std::string Describe(const Plan& plan) {
  std::string text;
  for (const PlannedAction& action : plan.actions) text += Describe(action) + "\n";
  return text;
}

// What a cluster looks like when the plan has been carried out.
Observed CarriedOut(Observed observed, const Plan& plan) {
  observed.status = plan.status;
  for (const PlannedAction& action : plan.actions) {
    if (const auto* create = std::get_if<CreateObject>(&action)) {
      const OrderedJson& object = create->object;
      if (object["kind"] == "Service") observed.has_service = true;
      if (object["kind"] == "ConfigMap") observed.has_config_map = true;
      if (object["kind"] == "NetworkPolicy") observed.has_network_policy = true;
      if (object["kind"] == "PersistentVolumeClaim") observed.claim = ClaimView{};
      if (object["kind"] != "Pod") continue;
      const OrderedJson& labels = object["metadata"]["labels"];
      PodView pod;
      pod.name = object["metadata"]["name"];
      pod.replica = std::stoi(labels["everstep.dev/replica"].get<std::string>());
      pod.incarnation = std::stoi(labels["everstep.dev/incarnation"].get<std::string>());
      observed.pods.push_back(pod);
    } else if (const auto* erase = std::get_if<DeletePod>(&action)) {
      for (PodView& pod : observed.pods) {
        if (pod.name == erase->name) pod.deleting = true;
      }
      std::erase_if(observed.pods, [](const PodView& pod) {
        return pod.deleting && pod.phase != PodPhase::kRunning;
      });
    } else if (std::holds_alternative<DeleteJob>(action)) {
      observed.job.spec.ttl_seconds_after_finished.reset();  // there is nothing left to look at
    }
  }
  return observed;
}

// Where `part` is not contained in `whole`; "" when it is.
std::string Missing(const OrderedJson& part, const OrderedJson& whole, const std::string& path) {
  if (!part.is_object() || !whole.is_object()) {
    if (part == whole) return "";
    return path + " is " + DumpJson(whole) + ", not " + DumpJson(part) + "\n";
  }
  std::string missing;
  for (const auto& [key, value] : part.items()) {
    const std::string child = path.empty() ? key : path + "." + key;
    missing += whole.contains(key) ? Missing(value, whole[key], child) : child + " is absent\n";
  }
  return missing;
}

void CheckEnv(const OrderedJson& want, const Plan& plan) {
  for (const PlannedAction& action : plan.actions) {
    const auto* create = std::get_if<CreateObject>(&action);
    if (create == nullptr || create->object["kind"] != "Pod") continue;
    for (const auto& [name, value] : want.items()) {
      OrderedJson found;
      for (const OrderedJson& entry : create->object["spec"]["containers"][0]["env"]) {
        if (entry["name"] == name) found = entry["value"];
      }
      EXPECT_EQ(found, value) << name;
    }
  }
}

void RunReconcile(const OrderedJson& row) {
  const Observed observed = ObservedOf(row);
  const WallTime now = At(row["now"].get<int64_t>());
  const OrderedJson& want = row["want"];

  const Plan plan = Reconcile(observed, now);

  std::string actions;
  for (const OrderedJson& action : want["actions"]) actions += action.get<std::string>() + "\n";
  EXPECT_EQ(Describe(plan), actions);
  EXPECT_EQ(Missing(want.value("status", OrderedJson::object()), plan.status, ""), "");
  for (const OrderedJson& key : want.value("absent", OrderedJson::array())) {
    EXPECT_FALSE(plan.status.contains(key.get<std::string>())) << key;
  }
  CheckEnv(want.value("env", OrderedJson::object()), plan);
  if (want.contains("requeueSeconds")) {
    ASSERT_TRUE(plan.requeue_after.has_value());
    EXPECT_EQ(Seconds(*plan.requeue_after), want["requeueSeconds"].get<double>());
  }
  if (want.contains("reason")) {
    EXPECT_EQ(plan.reason, want["reason"]);
  }

  const Plan again = Reconcile(CarriedOut(observed, plan), now);
  EXPECT_EQ(Describe(again), "") << "a second look plans more";
  EXPECT_EQ(DumpJson(again.status["phase"]), DumpJson(plan.status["phase"]));
  EXPECT_EQ(again.status.value("restarts", OrderedJson()),
            plan.status.value("restarts", OrderedJson()))
      << "a second look charges again";
}

void RunRecovery(const OrderedJson& row) {
  const OrderedJson& json = row["failure"];
  Failure failure;
  failure.rank = json.value("rank", 1);
  failure.pod_alive = json.value("podAlive", true);
  failure.victim = json.value("victim", false);
  failure.joined = json.value("joined", true);
  const auto history = RecoveryHistory::FromJson(row.value("history", OrderedJson()));
  // By default in a generation of its own.
  failure.regrouped = json.value("regrouped", history.last_regrouped + 1);
  failure.exited = json.contains("exitCode");
  failure.exit_code = json.value("exitCode", 0);
  failure.step = json.value("step", 0);
  failure.durable_step = json.value("durableStep", -1);
  const OrderedJson& want = row["want"];

  const RecoveryPlan plan =
      PlanRecovery(JobOf(row).spec.recovery, history, failure, row["now"].get<int64_t>());

  constexpr const char* kNames[] = {"RestartInPlace", "ReplacePod", "Fail"};
  EXPECT_EQ(kNames[static_cast<int>(plan.action)], want["action"].get<std::string>());
  EXPECT_EQ(plan.delay_seconds, want.value("delaySeconds", 0.0));
  if (want.contains("reason")) {
    EXPECT_EQ(plan.reason, want["reason"]);
  }
  EXPECT_EQ(Missing(want.value("history", OrderedJson::object()), plan.history.ToJson(), ""), "");
}

struct Scenario {
  std::string name;  // of the file and of the row, as a test's name
  std::string place;
  OrderedJson row;
};

std::string TestName(const std::string& text) {
  std::string name;
  bool upper = true;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) {
      upper = true;
    } else {
      name += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
      upper = false;
    }
  }
  return name;
}

std::vector<Scenario> ReadScenarios() {
  std::vector<Scenario> scenarios;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(EVERSTEP_SOURCE_DIR "/tests/scenarios")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    const auto document = ReadFile(file.string()).and_then([&](const std::string& text) {
      return ParseDocument(text, file.filename().string());
    });
    if (!document) {
      scenarios.push_back({TestName(file.stem().string()), document.error().message, {}});
      continue;
    }
    const OrderedJson& rows = document->value["scenarios"];
    for (size_t i = 0; i < rows.size(); ++i) {
      scenarios.push_back(
          {TestName(file.stem().string()) + "_" + TestName(rows[i].value("name", "")),
           document->Where("scenarios[" + std::to_string(i) + "]"), rows[i]});
    }
  }
  return scenarios;
}

class ScenarioTest : public testing::TestWithParam<Scenario> {};

TEST_P(ScenarioTest, GoesAsWritten) {
  SCOPED_TRACE(GetParam().place);
  const OrderedJson& row = GetParam().row;
  ASSERT_TRUE(row.is_object() && row.contains("now") && row.contains("want"));
  if (row.contains("failure")) {
    RunRecovery(row);
  } else {
    RunReconcile(row);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScenarioTest, testing::ValuesIn(ReadScenarios()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace everstep
