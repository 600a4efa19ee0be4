// Runs the real `everstep run` on a job with a tiny model and kills parts of it.
#ifndef EVERSTEP_TESTS_E2E_JOB_RUNNER_H_
#define EVERSTEP_TESTS_E2E_JOB_RUNNER_H_

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "tests/support/temp_dir.h"

namespace everstep::testing {

struct JobShape {
  std::string finetuning = "lora";  // lora | full
  int ranks = 2;
  int steps = 24;
  int save_steps = 8;
  std::string checkpoint;  // further fields of spec.checkpoint: ", keepLast: 2"
  // Further keys of the training file, or other values for those that it has.
  std::map<std::string, std::string> train;
};

// One job in a temporary directory of its own, removed with it.
class JobRunner {
 public:
  explicit JobRunner(const JobShape& shape);
  ~JobRunner();
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;

  // Starts `everstep run` in the background; its output is added to output_path().
  void Start(const std::vector<std::string>& arguments = {});
  // Waits for it; returns the exit code, or 128 + the signal. Kills it after the timeout (a test
  // that hangs is a failed test): then -1.
  int Wait(std::chrono::seconds timeout = std::chrono::seconds(240));
  bool Running();
  // Another `everstep run` of the same job, while this one goes on; returns its exit code.
  int RunBeside();
  pid_t pid() const { return pid_; }
  void Signal(int signal) const;

  // Processes of this job by rank, found by their environment.
  std::map<int, pid_t> Workers() const;
  std::map<int, pid_t> Supervisors() const;

  // Waits until the log says that at least `step` steps are done, or the run ended (false).
  bool WaitForStep(int step, std::chrono::seconds timeout = std::chrono::seconds(120));
  // Steps in the order in which the run reported them, over all its lives.
  std::vector<int> ReportedSteps() const;

  // Steps with a loss in trainer_log.jsonl.
  std::vector<int> LoggedSteps() const;

  std::string Output() const;
  // Log lines of the run (JSON objects) whose message is this one.
  std::vector<Json> Messages(const std::string& message) const;
  std::filesystem::path output_path() const { return directory_ / "output.jsonl"; }
  std::filesystem::path directory() const { return directory_; }
  // The directory that holds the trained model or adapter.
  std::filesystem::path results() const;
  // SHA-256 (hex) of the trained weights.
  std::string WeightsSha256() const;

 private:
  pid_t Spawn(const std::vector<std::string>& arguments) const;
  std::map<int, pid_t> Find(const std::string& program) const;

  JobShape shape_;
  std::string name_;
  const TempDir temporary_;
  const std::filesystem::path directory_ = temporary_.path();
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

// SHA-256 (hex) of the weights of an undisturbed run of this shape; computed once per process.
std::string UndisturbedSha256(const JobShape& shape);

// 1, 2, ..., last.
std::vector<int> StepsUpTo(int last);

// Names of the checkpoints in a directory, also of half-written ones, sorted.
std::vector<std::string> CheckpointsIn(const std::filesystem::path& directory);

// An ordinary model directory with a small Llama in it.
void MakeTinyModel(const std::filesystem::path& directory);

std::string FileSha256(const std::filesystem::path& path);

}  // namespace everstep::testing

#endif  // EVERSTEP_TESTS_E2E_JOB_RUNNER_H_
