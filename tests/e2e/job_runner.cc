#include "tests/e2e/job_runner.h"

#include <openssl/evp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/check.h"
#include "common/json.h"
#include "tests/support/paths.h"

namespace everstep::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  return std::move(content).str();
}

void MakeModel(const fs::path& directory) {
  fs::create_directories(directory);
  const fs::path model = fs::path(EVERSTEP_SOURCE_DIR) / "tests/golden/models/tiny-llama";
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(model / file, directory / file);
  }
  const fs::path tokenizer = TestTokenizerDir("tiny-llama");
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(tokenizer / file, directory / file);
  }
}

std::string Manifest(const JobShape& shape, const std::string& name, const fs::path& directory) {
  std::ostringstream yaml;
  yaml << "apiVersion: everstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " << name
       << "}\nspec:\n  replicas: " << shape.ranks << "\n  threadsPerProcess: 1\n"
       << "  checkpoint: {claimName: checkpoints}\n";
  std::istringstream spec(shape.extra_spec_yaml);
  for (std::string line; std::getline(spec, line);) yaml << "  " << line << "\n";
  yaml << "  train:\n    model_name_or_path: " << (directory / "model").string()
       << "\n    stage: sft\n    do_train: true\n    finetuning_type: " << shape.finetuning
       << "\n    template: llama3\n    dataset: own_alpaca\n    dataset_dir: "
       << EVERSTEP_SOURCE_DIR << "/tests/golden/data\n    cutoff_len: 128\n"
       << "    per_device_train_batch_size: 2\n    gradient_accumulation_steps: 2\n"
       << "    learning_rate: 1.0e-3\n    lr_scheduler_type: cosine\n    warmup_ratio: 0.1\n"
       << "    max_steps: " << shape.steps << "\n    save_steps: " << shape.save_steps
       << "\n    logging_steps: 1\n    output_dir: out\n    overwrite_output_dir: true\n"
       << "    report_to: none\n    lora_dropout: 0.05\n";
  std::istringstream train(shape.extra_train_yaml);
  for (std::string line; std::getline(train, line);) yaml << "    " << line << "\n";
  return std::move(yaml).str();
}

// The value of `key` in the environment of process `pid`, or "".
std::string EnvironmentOf(pid_t pid, const std::string& key) {
  const std::string all = ReadAll("/proc/" + std::to_string(pid) + "/environ");
  std::istringstream entries(all);
  for (std::string entry; std::getline(entries, entry, '\0');) {
    if (entry.starts_with(key + "=")) return entry.substr(key.size() + 1);
  }
  return "";
}

}  // namespace

JobRunner::JobRunner(const JobShape& shape) : shape_(shape) {
  static std::atomic<int> number{0};
  name_ = "t" + std::to_string(getpid()) + "-" + std::to_string(number++);
  std::string pattern = (fs::temp_directory_path() / "everstep-e2e-XXXXXX").string();
  EVERSTEP_CHECK(mkdtemp(pattern.data()) != nullptr);
  directory_ = pattern;
  MakeModel(directory_ / "model");
  std::ofstream(directory_ / "job.yaml") << Manifest(shape_, name_, directory_);
}

JobRunner::~JobRunner() {
  if (Running()) {
    kill(pid_, SIGKILL);
    Wait();
  }
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

void JobRunner::Start() {
  exit_code_.reset();
  const std::string program = std::string(EVERSTEP_BINARY_DIR) + "/bin/everstep";
  pid_ = fork();
  EVERSTEP_CHECK(pid_ >= 0);
  if (pid_ > 0) return;
  EVERSTEP_CHECK(chdir(directory_.c_str()) == 0);
  std::FILE* out = std::freopen(output_path().c_str(), "a", stdout);
  EVERSTEP_CHECK(out != nullptr && dup2(STDOUT_FILENO, STDERR_FILENO) >= 0);
  execl(program.c_str(), "everstep", "run", "job.yaml", "--log-format=json", nullptr);
  std::perror(program.c_str());
  _exit(127);
}

bool JobRunner::Running() {
  if (pid_ <= 0 || exit_code_.has_value()) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return false;
}

int JobRunner::Wait(std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (Running()) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      exit_code_ = -1;
      break;
    }
    std::this_thread::sleep_for(5ms);
  }
  return exit_code_.value_or(-1);
}

void JobRunner::Signal(int signal) const { kill(pid_, signal); }

std::map<int, pid_t> JobRunner::Find(const std::string& program) const {
  std::map<int, pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = std::stoi(name);
    // The kernel cuts a command's name to 15 characters.
    std::string command = ReadAll(entry.path() / "comm");
    if (!command.empty() && command.back() == '\n') command.pop_back();
    if (command != program.substr(0, 15)) continue;
    if (EnvironmentOf(pid, "EVERSTEP_JOB") != name_) continue;
    const bool worker = program == "everstep-worker";
    const std::string number = EnvironmentOf(pid, worker ? "RANK" : "EVERSTEP_REPLICA");
    if (!number.empty()) found[std::stoi(number)] = pid;
  }
  return found;
}

std::map<int, pid_t> JobRunner::Workers() const { return Find("everstep-worker"); }
std::map<int, pid_t> JobRunner::Supervisors() const { return Find("everstep-supervisor"); }

std::vector<int> JobRunner::ReportedSteps() const {
  std::vector<int> steps;
  std::istringstream lines(Output());
  for (std::string line; std::getline(lines, line);) {
    const auto json = ParseJson(line, "output");
    if (json && JsonValue<std::string>(*json, "message", "") == "step") {
      steps.push_back(JsonValue<int>(*json, "step", -1));
    }
  }
  return steps;
}

bool JobRunner::WaitForStep(int step, std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < deadline) {
    const std::vector<int> steps = ReportedSteps();
    if (!steps.empty() && steps.back() >= step) return true;
    if (!Running()) return false;
    std::this_thread::sleep_for(2ms);
  }
  return false;
}

std::string JobRunner::Output() const { return ReadAll(output_path()); }

std::filesystem::path JobRunner::results() const {
  return directory_ / "everstep-runs" / name_ / "claims/checkpoints/out";
}

std::string JobRunner::WeightsSha256() const {
  return FileSha256(results() / (shape_.finetuning == "lora" ? "adapter_model.safetensors"
                                                             : "model.safetensors"));
}

std::string UndisturbedSha256(const JobShape& shape) {
  static std::map<std::string, std::string> known;
  const std::string key = shape.finetuning + "/" + std::to_string(shape.ranks) + "/" +
                          std::to_string(shape.steps) + "/" + shape.extra_train_yaml;
  if (const auto found = known.find(key); found != known.end()) return found->second;
  JobRunner runner(shape);
  runner.Start();
  EVERSTEP_CHECK(runner.Wait() == 0);
  return known[key] = runner.WeightsSha256();
}

std::string FileSha256(const std::filesystem::path& path) {
  const std::string content = ReadAll(path);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVERSTEP_CHECK(!content.empty());
  EVP_Digest(content.data(), content.size(), digest.data(), &size, EVP_sha256(), nullptr);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    char byte[3];
    std::snprintf(byte, sizeof(byte), "%02x", digest[i]);
    hex += byte;
  }
  return hex;
}

}  // namespace everstep::testing
