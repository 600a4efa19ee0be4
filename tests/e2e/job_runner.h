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

namespace everstep::testing {

struct JobShape {
  std::string finetuning = "lora";  // lora | full
  int ranks = 2;
  int steps = 24;
  int save_steps = 8;
  std::string extra_train_yaml;  // further lines of the train section, each "key: value\n"
  std::string extra_spec_yaml;   // further lines of the spec, each "key: value\n"
};

// One job in a temporary directory of its own, removed with it.
class JobRunner {
 public:
  explicit JobRunner(const JobShape& shape);
  ~JobRunner();
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;

  // Starts `everstep run` in the background; its output goes to output_path().
  void Start();
  // Waits for it; returns the exit code, or 128 + the signal. Kills it after the timeout (a test
  // that hangs is a failed test): then -1.
  int Wait(std::chrono::seconds timeout = std::chrono::seconds(240));
  bool Running();
  pid_t pid() const { return pid_; }
  void Signal(int signal) const;

  // Processes of this job by rank, found by their environment.
  std::map<int, pid_t> Workers() const;
  std::map<int, pid_t> Supervisors() const;

  // Waits until the log says that at least `step` steps are done, or the run ended (false).
  bool WaitForStep(int step, std::chrono::seconds timeout = std::chrono::seconds(120));
  // Steps in the order in which the run reported them, over all its lives.
  std::vector<int> ReportedSteps() const;

  std::string Output() const;
  std::filesystem::path output_path() const { return directory_ / "output.jsonl"; }
  std::filesystem::path directory() const { return directory_; }
  // The directory that holds the trained model or adapter.
  std::filesystem::path results() const;
  // SHA-256 (hex) of the trained weights.
  std::string WeightsSha256() const;

 private:
  std::map<int, pid_t> Find(const std::string& program) const;

  JobShape shape_;
  std::string name_;
  std::filesystem::path directory_;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

// SHA-256 (hex) of the weights of an undisturbed run of this shape; computed once per process.
std::string UndisturbedSha256(const JobShape& shape);

std::string FileSha256(const std::filesystem::path& path);

}  // namespace everstep::testing

#endif  // EVERSTEP_TESTS_E2E_JOB_RUNNER_H_
