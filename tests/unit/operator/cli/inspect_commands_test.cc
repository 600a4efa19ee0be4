#include "operator/cli/inspect_commands.h"

#include <gtest/gtest.h>

#include <fstream>

#include "common/files.h"
#include "operator/api/names.h"
#include "operator/cli/run_command.h"
#include "operator/local/object_store.h"
#include "tests/support/captured_output.h"
#include "tests/support/temp_dir.h"

namespace everstep {
namespace {

struct Ran {
  int code = -1;
  std::string out;
  std::string err;
};

Ran Execute(const std::function<int()>& command) {
  Ran ran;
  const Output output = CaptureOutput([&] { ran.code = command(); });
  ran.out = output.out;
  ran.err = output.err;
  return ran;
}

class InspectTest : public testing::Test {
 protected:
  // A job's folder as `everstep run` leaves it. Null: nothing has happened to the job yet.
  void GivenJob(const std::string& name, const OrderedJson& status) {
    auto store = ObjectStore::Open(runs_ + "/" + name + "/state", clock_);
    ASSERT_TRUE(store.has_value()) << store.error().message;
    OrderedJson job = *(*store)->Create({{"apiVersion", names::kApiVersion},
                                         {"kind", names::kKind},
                                         {"metadata", {{"name", name}}},
                                         {"spec", {{"replicas", 2}}}});
    if (status.is_null()) return;
    job["status"] = status;
    ASSERT_TRUE((*store)->UpdateStatus(job).has_value());
  }
  void GivenLog(const std::string& job, const std::string& pod, const std::string& text) {
    const std::string logs = runs_ + "/" + job + "/logs";
    ASSERT_TRUE(MakeDirectories(logs).has_value());
    std::ofstream(logs + "/" + pod + ".log", std::ios::binary) << text;
  }
  Ran Status(const std::string& job, bool json = false) {
    return Execute([&] { return StatusCommand(runs_, job, json); });
  }
  Ran Logs(const std::string& job, std::optional<int> replica = std::nullopt) {
    return Execute([&] { return LogsCommand(runs_, job, replica); });
  }

  TempDir directory_;
  ManualClock clock_;
  const std::string runs_ = directory_ / "runs";
};

const OrderedJson kRunning{{"phase", "Running"},
                           {"progress", {{"step", 7}, {"totalSteps", 10}}},
                           {"checkpoint", {{"step", 5}}},
                           {"restarts", {{"total", 1}}},
                           {"replicaStatuses", {{"desired", 2}, {"running", 1}}}};
const std::string kHeader =
    "NAME                     PHASE       READY   STEP        CHECKPOINT  RESTARTS \n";

// ---- status ----

TEST_F(InspectTest, JobsAreInATableByName) {
  GivenJob("qwen", kRunning);
  GivenJob("new", nullptr);
  ASSERT_TRUE(MakeDirectories(runs_ + "/no-job").has_value());
  std::ofstream(runs_ + "/notes.txt") << "not a job\n";

  const Ran ran = Status("");
  EXPECT_EQ(ran.code, kExitSucceeded);
  EXPECT_EQ(ran.out,
            kHeader +
                "new                      Pending     0/0     -/-         -           -        \n"
                "qwen                     Running     1/2     7/10        5           1        \n");
  EXPECT_EQ(ran.err, "");
}

TEST_F(InspectTest, WithoutJobsTheTableIsEmpty) {
  const Ran ran = Status("");
  EXPECT_EQ(ran.code, kExitSucceeded);
  EXPECT_EQ(ran.out, kHeader);
}

TEST_F(InspectTest, ProgramsGetAllJobsAsAList) {
  EXPECT_EQ(Status("", true).out, "[]\n");
  GivenJob("qwen", kRunning);
  GivenJob("new", nullptr);
  const Ran ran = Status("", true);
  EXPECT_EQ(ran.code, kExitSucceeded);
  const auto list = ParseOrderedJson(ran.out, "status");
  ASSERT_TRUE(list.has_value()) << list.error().message;
  EXPECT_EQ(*list, (OrderedJson::array({{{"name", "new"}, {"status", OrderedJson::object()}},
                                        {{"name", "qwen"}, {"status", kRunning}}})));
}

TEST_F(InspectTest, OneJobIsShownInFull) {
  GivenJob("qwen", {{"phase", "Running"}, {"progress", {{"step", 7}}}});
  GivenJob("new", nullptr);
  const Ran ran = Status("qwen");
  EXPECT_EQ(ran.code, kExitSucceeded);
  EXPECT_EQ(ran.out, "{\n  \"phase\": \"Running\",\n  \"progress\": {\n    \"step\": 7\n  }\n}\n");
  EXPECT_EQ(Status("new").out, "{}\n");
}

TEST_F(InspectTest, AnUnknownJobIsOneLineAndBadInput) {
  GivenJob("qwen", kRunning);
  const Ran ran = Status("qewn");
  EXPECT_EQ(ran.code, kExitBadInput);
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "no job 'qewn' in " + runs_ + "\n");
}

TEST_F(InspectTest, ADamagedObjectIsNamedAndDoesNotHideOtherJobs) {
  GivenJob("qwen", kRunning);
  GivenJob("torn", kRunning);
  const std::string path = runs_ + "/torn/state/TrainingJob/torn.json";
  std::ofstream(path, std::ios::trunc) << "{\n";
  const Ran one = Status("torn");
  EXPECT_EQ(one.code, kExitBadInput);
  EXPECT_EQ(one.err, path +
                         ":2: malformed JSON: syntax error while parsing object key - unexpected "
                         "end of input; expected string literal\n");
  const Ran all = Status("");
  EXPECT_EQ(all.code, kExitSucceeded);
  EXPECT_EQ(
      all.out,
      kHeader + "qwen                     Running     1/2     7/10        5           1        \n");
  EXPECT_EQ(all.err, one.err);

  // Well-formed, but nothing that a store has written.
  std::ofstream(path, std::ios::trunc) << "[]\n";
  EXPECT_EQ(Status("torn").out, "{}\n");
}

// ---- logs ----

TEST_F(InspectTest, OneLogIsPrintedAsItIs) {
  const std::string bytes("one\nt\0wo\n", 9);
  GivenLog("job", "job-0-0", bytes);
  const Ran ran = Logs("job");
  EXPECT_EQ(ran.code, kExitSucceeded);
  EXPECT_EQ(ran.out, bytes);
  EXPECT_EQ(ran.err, "");
}

TEST_F(InspectTest, SeveralLogsHaveHeadersAndAreInTheOrderOfReplicasAndIncarnations) {
  GivenLog("job", "job-10-0", "ten\n");
  GivenLog("job", "job-2-10", "two, again\n");
  GivenLog("job", "job-2-9", "two\n");
  GivenLog("job", "job-0-0", "killed in the mid");
  EXPECT_EQ(Logs("job").out,
            "==> job-0-0 <==\nkilled in the mid\n"
            "==> job-2-9 <==\ntwo\n"
            "==> job-2-10 <==\ntwo, again\n"
            "==> job-10-0 <==\nten\n");
}

TEST_F(InspectTest, OneReplicasLogsAreOfAllItsIncarnations) {
  GivenLog("job", "job-1-0", "first\n");
  GivenLog("job", "job-1-1", "second\n");
  GivenLog("job", "job-11-0", "eleven\n");
  EXPECT_EQ(Logs("job", 1).out, "==> job-1-0 <==\nfirst\n==> job-1-1 <==\nsecond\n");
  EXPECT_EQ(Logs("job", 11).out, "eleven\n");
}

TEST_F(InspectTest, WithoutLogsItIsOneLineAndBadInput) {
  GivenLog("job", "job-0-0", "x\n");
  for (const Ran& ran : {Logs("job", 4), Logs("jbo")}) {
    EXPECT_EQ(ran.code, kExitBadInput);
    EXPECT_EQ(ran.out, "");
  }
  EXPECT_EQ(Logs("job", 4).err, "no logs of replica 4 of job 'job' in " + runs_ + "/job/logs\n");
  EXPECT_EQ(Logs("jbo").err, "no logs of job 'jbo' in " + runs_ + "/jbo/logs\n");
}

// ---- validate ----

TEST_F(InspectTest, AGoodManifestIsValidWithItsWarnings) {
  const std::string path = directory_ / "job.yaml";
  std::ofstream(path) << "apiVersion: everstep.dev/v1alpha1\nkind: TrainingJob\n"
                         "metadata: {name: job}\nspec:\n  train:\n    model_name_or_path: m\n"
                         "    dataset: d\n    do_train: true\n    report_to: wandb\n";
  const Ran ran = Execute([&] { return ValidateCommand(path); });
  EXPECT_EQ(ran.code, kExitSucceeded);
  EXPECT_EQ(ran.out, "warning: " + path +
                         ":9: report_to wandb: trackers are not connected; the figures are in "
                         "trainer_log.jsonl\n" +
                         path + ": TrainingJob job is valid\n");
}

TEST_F(InspectTest, ABadManifestIsBadInput) {
  const std::string path = directory_ / "job.yaml";
  const Ran ran = Execute([&] { return ValidateCommand(path); });
  EXPECT_EQ(ran.code, kExitBadInput);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, path + ": cannot open: No such file or directory\n");
}

}  // namespace
}  // namespace everstep
