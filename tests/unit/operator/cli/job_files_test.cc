#include "operator/cli/job_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <utility>

#include "common/files.h"
#include "operator/api/names.h"
#include "tests/support/temp_dir.h"

namespace everstep {
namespace {

using testing::IsEmpty;

// ---- Who runs a job ----

// Another process that takes the lock and keeps it until it is killed.
class Holder {
 public:
  explicit Holder(const std::string& run_directory) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      const auto lock = RunLock::Take(run_directory);
      char byte = lock ? 'y' : 'n';
      // Waits for the test, and ends with it.
      if (write(ends[1], &byte, 1) == 1 && read(ends[1], &byte, 1) >= 0) _exit(0);
      _exit(1);
    }
    close(ends[1]);
    test_ = ends[0];
    char answer = 'n';
    holds_ = read(test_, &answer, 1) == 1 && answer == 'y';
  }
  ~Holder() {
    Kill();
    close(test_);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  bool holds() const { return holds_; }
  pid_t pid() const { return pid_; }
  void Kill() {
    const pid_t pid = std::exchange(pid_, -1);
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
  int test_ = -1;
  bool holds_ = false;
};

class RunLockTest : public testing::Test {
 protected:
  std::string Refusal() {
    const auto lock = RunLock::Take(run_directory_);
    if (lock) return "";
    EXPECT_EQ(lock.error().code, ErrorCode::kFailedPrecondition);
    return lock.error().message;
  }
  std::string RunningAlready(const std::string& process) const {
    return run_directory_ + ": the job is running already (process " + process + ")";
  }

  TempDir directory_;
  const std::string run_directory_ = directory_ / "runs/job";  // does not exist yet
};

TEST_F(RunLockTest, TheSecondTakerIsToldTheFirstOnesProcess) {
  const auto first = RunLock::Take(run_directory_);
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_EQ(Refusal(), RunningAlready(std::to_string(getpid())));
}

TEST_F(RunLockTest, IsFreedWhenItsHolderGoesOutOfScope) {
  {
    auto lock = RunLock::Take(run_directory_);
    ASSERT_TRUE(lock.has_value()) << lock.error().message;
    const RunLock moved = std::move(*lock);
    EXPECT_NE(Refusal(), "");
  }
  EXPECT_EQ(Refusal(), "");
  EXPECT_EQ(Refusal(), "");
}

TEST_F(RunLockTest, IsFreedWhenItsHolderIsKilled) {
  Holder holder(run_directory_);
  ASSERT_TRUE(holder.holds());
  EXPECT_EQ(Refusal(), RunningAlready(std::to_string(holder.pid())));
  holder.Kill();
  const auto next = RunLock::Take(run_directory_);
  ASSERT_TRUE(next.has_value()) << next.error().message;
  // The dead one's process is forgotten.
  EXPECT_EQ(Refusal(), RunningAlready(std::to_string(getpid())));
}

TEST_F(RunLockTest, AHolderThatHasNotSaidWhoItIsIsUnknown) {
  Holder holder(run_directory_);
  ASSERT_TRUE(holder.holds());
  std::ofstream(run_directory_ + "/lock", std::ios::trunc).flush();
  EXPECT_EQ(Refusal(), RunningAlready("unknown"));
}

TEST_F(RunLockTest, JobsDoNotLockEachOther) {
  const auto one = RunLock::Take(run_directory_);
  const auto other = RunLock::Take(directory_ / "runs/other");
  EXPECT_TRUE(one.has_value());
  EXPECT_TRUE(other.has_value());
}

TEST_F(RunLockTest, AFolderThatCannotBeHadIsNamed) {
  std::ofstream(directory_ / "runs") << "a file\n";
  EXPECT_EQ(Refusal(), run_directory_ +
                           ": cannot create directory: Not a directory: choose another --run-dir");
}

// ---- What an earlier run left ----

const std::string kTrain =
    "  train: {model_name_or_path: m, dataset: d, do_train: true, learning_rate: 1.0e-4}\n";

class PrepareJobTest : public testing::Test {
 protected:
  PrepareJobTest() { Reopen(); }
  void Reopen() {
    store_.reset();
    auto store = ObjectStore::Open(directory_ / "state", clock_);
    ASSERT_TRUE(store.has_value()) << store.error().message;
    store_ = std::move(*store);
  }
  Result<bool> Prepare(const std::string& spec) {
    const std::string path = directory_ / "job.yaml";
    std::ofstream(path) << "apiVersion: everstep.dev/v1alpha1\nkind: TrainingJob\n"
                           "metadata: {name: job}\nspec:\n" +
                               spec;
    const auto manifest = LoadManifest(path);
    if (!manifest) return tl::unexpected(manifest.error());
    return PrepareJob(*manifest, *store_);
  }
  // A job of this spec to which `status` has happened.
  void Given(const std::string& spec, const OrderedJson& status) {
    const auto prepared = Prepare(spec);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
    OrderedJson job = Job();
    job["status"] = status;
    ASSERT_TRUE(store_->UpdateStatus(job).has_value());
  }
  void GivenObject(const std::string& kind, const std::string& name, const OrderedJson& status) {
    OrderedJson object{
        {"apiVersion", "v1"}, {"kind", kind}, {"metadata", {{"name", name}}}, {"status", status}};
    ASSERT_TRUE(store_->Create(object).has_value());
  }
  OrderedJson Job() { return store_->Get(names::kKind, "job").value_or(OrderedJson()); }
  void ExpectContinues(const std::string& spec) {
    const auto prepared = Prepare(spec);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
    EXPECT_TRUE(*prepared);
  }

  TempDir directory_;
  ManualClock clock_;
  std::unique_ptr<ObjectStore> store_;
};

const std::string kSpec = "  replicas: 2\n  threadsPerProcess: 1\n" + kTrain;
const OrderedJson kTrained{{"phase", "Running"},
                           {"logicalWorld", 2},
                           {"threadsPerProcess", 1},
                           {"progress", {{"step", 7}, {"totalSteps", 10}}}};

TEST_F(PrepareJobTest, ANewJobIsCreated) {
  ExpectContinues(kSpec);
  Reopen();
  const OrderedJson job = Job();
  EXPECT_EQ(job["spec"]["replicas"], 2);
  EXPECT_EQ(job["spec"]["train"]["learning_rate"], 1e-4);
  EXPECT_EQ(job["metadata"]["generation"], 1);
  EXPECT_FALSE(job.contains("status"));
}

TEST_F(PrepareJobTest, AStatusInTheManifestIsNotBelieved) {
  ExpectContinues(kSpec + "status: {phase: Succeeded}\n");
  EXPECT_FALSE(Job().contains("status"));
}

TEST_F(PrepareJobTest, ASucceededJobIsLeftAlone) {
  Given(kSpec, {{"phase", "Succeeded"}, {"progress", {{"step", 10}}}});
  const OrderedJson before = Job();
  const auto prepared = Prepare("  replicas: 4\n" + kTrain);
  ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
  EXPECT_FALSE(*prepared);
  EXPECT_EQ(Job(), before);
}

TEST_F(PrepareJobTest, AFailedJobIsRetriedWithItsProgressButWithoutItsFailure) {
  const OrderedJson achieved{
      {"progress", {{"step", 7}}}, {"checkpoint", {{"step", 5}, {"path", "out/checkpoint-5"}}},
      {"incarnations", {2, 0}},    {"logicalWorld", 2},
      {"threadsPerProcess", 1},    {"incidents", {{{"id", 1}, {"rank", 1}}}}};
  OrderedJson status = achieved;
  status["phase"] = "Failed";
  status["failure"] = "rank 1 exited with code 2";
  status["message"] = "rank 1 exited with code 2";
  status["completionTime"] = "2026-11-30T12:00:00Z";
  status["startUnixSeconds"] = 1;
  status["restarts"] = {{"total", 10}};
  status["chargedPods"] = {{"1", "job-1-0"}};
  status["lostPods"] = {"job-1-0"};
  status["notBefore"] = {{"1", 4'000'000'000}};
  Given(kSpec, status);

  ExpectContinues(kSpec);

  Reopen();
  OrderedJson expected = achieved;
  expected["phase"] = "Pending";
  EXPECT_EQ(Json(Job()["status"]), Json(expected));
}

TEST_F(PrepareJobTest, AStoppedJobGoesOn) {
  Given(kSpec, kTrained);
  OrderedJson job = Job();
  job["spec"]["suspend"] = true;
  job = *store_->Update(job);
  job["status"]["phase"] = "Suspended";
  ASSERT_TRUE(store_->UpdateStatus(job).has_value());

  ExpectContinues(kSpec);

  EXPECT_FALSE(Job()["spec"].contains("suspend"));
  EXPECT_EQ(Job()["status"]["phase"], "Pending");
  EXPECT_EQ(Job()["status"]["progress"], kTrained["progress"]);
}

struct Change {
  const char* name;
  std::string spec;
  std::string key;
};
void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

class ChangedJobTest : public PrepareJobTest, public testing::WithParamInterface<Change> {};

TEST_P(ChangedJobTest, IsRefusedWhenItIsUnfinished) {
  Given(kSpec, kTrained);
  const OrderedJson before = Job();
  const auto prepared = Prepare(GetParam().spec);
  ASSERT_FALSE(prepared.has_value());
  EXPECT_EQ(prepared.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(prepared.error().message,
            GetParam().key +
                " was changed, but the job is unfinished and its results depend on it: change it "
                "back, give the job another name, or start over with --again");
  EXPECT_EQ(Job(), before);
}

TEST_P(ChangedJobTest, IsRefusedWithACheckpointAlone) {
  Given(kSpec, {{"phase", "Failed"}, {"checkpoint", {{"step", 5}}}});
  EXPECT_FALSE(Prepare(GetParam().spec).has_value());
}

TEST_P(ChangedJobTest, IsTakenWhenItHasNeverTrained) {
  Given(kSpec, {{"phase", "Failed"},
                {"failure", "no such model"},
                {"logicalWorld", 2},
                {"threadsPerProcess", 1}});
  GivenObject("ConfigMap", names::TrainConfigMap("job"), {});
  ExpectContinues(GetParam().spec);
  // What was decided for the old manifest is decided anew.
  EXPECT_EQ(DumpJson(Job()["status"]), R"({"phase":"Pending"})");
  EXPECT_FALSE(store_->Get("ConfigMap", names::TrainConfigMap("job")).has_value());
}

INSTANTIATE_TEST_SUITE_P(
    All, ChangedJobTest,
    testing::Values(
        Change{"Replicas", "  replicas: 4\n  threadsPerProcess: 1\n" + kTrain,
               "spec.replicas (with processesPerReplica)"},
        Change{"Processes",
               "  replicas: 2\n  processesPerReplica: 2\n  threadsPerProcess: 1\n" + kTrain,
               "spec.replicas (with processesPerReplica)"},
        Change{"Threads", "  replicas: 2\n  threadsPerProcess: 2\n" + kTrain,
               "spec.threadsPerProcess"},
        Change{"NoThreads", "  replicas: 2\n" + kTrain, "spec.threadsPerProcess"},
        Change{"Train",
               "  replicas: 2\n  threadsPerProcess: 1\n  train: {model_name_or_path: m, "
               "dataset: d, do_train: true, learning_rate: 2.0e-4}\n",
               "spec.train"},
        Change{"MoreTrain",
               "  replicas: 2\n  threadsPerProcess: 1\n  train: {model_name_or_path: m, "
               "dataset: d, do_train: true, learning_rate: 1.0e-4, seed: 7}\n",
               "spec.train"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(PrepareJobTest, WhatTheResultsDoNotDependOnMayChange) {
  Given(kSpec, kTrained);
  ExpectContinues(kSpec + "  recovery: {maxRestarts: 99}\n");
  EXPECT_EQ(Job()["spec"]["recovery"]["maxRestarts"], 99);
  EXPECT_EQ(Job()["status"]["progress"], kTrained["progress"]);
  EXPECT_EQ(Job()["status"]["logicalWorld"], 2);
}

TEST_F(PrepareJobTest, TheOrderOfTheTrainingFilesKeysMayChange) {
  Given(kSpec, kTrained);
  ExpectContinues(
      "  threadsPerProcess: 1\n  replicas: 2\n"
      "  train: {learning_rate: 0.0001, do_train: true, dataset: d, model_name_or_path: m}\n");
}

TEST_F(PrepareJobTest, PodsOfAnEarlierRunAreRemoved) {
  Given(kSpec, kTrained);
  GivenObject("Pod", "job-0-0", {{"phase", "Failed"}});
  GivenObject("Pod", "job-1-0", {{"phase", "Running"}});  // as `everstep run` was killed
  ExpectContinues(kSpec);
  EXPECT_THAT(*store_->List("Pod"), IsEmpty());
  Reopen();
  EXPECT_THAT(*store_->List("Pod"), IsEmpty());
}

}  // namespace
}  // namespace everstep
