#include "tests/e2e/job_runner.h"

#include <openssl/evp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <numeric>
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

std::string Manifest(const JobShape& shape, const std::string& name, const fs::path& directory) {
  std::map<std::string, std::string> train = {
      {"model_name_or_path", (directory / "model").string()},
      {"stage", "sft"},
      {"do_train", "true"},
      {"finetuning_type", shape.finetuning},
      {"template", "llama3"},
      {"dataset", "own_alpaca"},
      {"dataset_dir", GoldenPath("data")},
      {"cutoff_len", "128"},
      {"per_device_train_batch_size", "2"},
      {"gradient_accumulation_steps", "2"},
      {"learning_rate", "1.0e-3"},
      {"lr_scheduler_type", "cosine"},
      {"warmup_ratio", "0.1"},
      {"max_steps", std::to_string(shape.steps)},
      {"save_steps", std::to_string(shape.save_steps)},
      {"logging_steps", "1"},
      {"output_dir", "out"},
      {"overwrite_output_dir", "true"},
      {"report_to", "none"},
      {"lora_dropout", "0.05"}};
  for (const auto& [key, value] : shape.train) train[key] = value;
  std::ostringstream yaml;
  yaml << "apiVersion: everstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " << name
       << "}\nspec:\n  replicas: " << shape.ranks << "\n  threadsPerProcess: 1\n"
       << "  checkpoint: {claimName: checkpoints" << shape.checkpoint << "}\n  train:\n";
  for (const auto& [key, value] : train) yaml << "    " << key << ": " << value << "\n";
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

void MakeTinyModel(const fs::path& directory) {
  fs::create_directories(directory);
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(GoldenPath(std::string("models/tiny-llama/") + file), directory / file);
  }
  const fs::path tokenizer = TestTokenizerDir("tiny-llama");
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(tokenizer / file, directory / file);
  }
}

JobRunner::JobRunner(const JobShape& shape) : shape_(shape) {
  static std::atomic<int> number{0};
  name_ = "t" + std::to_string(getpid()) + "-" + std::to_string(number++);
  MakeTinyModel(directory_ / "model");
  std::ofstream(directory_ / "job.yaml") << Manifest(shape_, name_, directory_);
}

JobRunner::~JobRunner() {
  if (Running()) {
    kill(pid_, SIGKILL);
    Wait();
  }
}

void JobRunner::Start(const std::vector<std::string>& arguments) {
  exit_code_.reset();
  pid_ = Spawn(arguments);
}

pid_t JobRunner::Spawn(const std::vector<std::string>& arguments) const {
  const std::string program = std::string(EVERSTEP_BINARY_DIR) + "/bin/everstep";
  std::fflush(nullptr);  // or the child would write it once more
  const pid_t pid = fork();
  EVERSTEP_CHECK(pid >= 0);
  if (pid > 0) return pid;
  EVERSTEP_CHECK(chdir(directory_.c_str()) == 0);
  std::FILE* out = std::freopen(output_path().c_str(), "a", stdout);
  EVERSTEP_CHECK(out != nullptr && dup2(STDOUT_FILENO, STDERR_FILENO) >= 0);
  std::vector<std::string> words = {program, "run", "job.yaml", "--log-format=json"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  std::perror(program.c_str());
  _exit(127);
}

int JobRunner::RunBeside() {
  const pid_t pid = Spawn({});
  int status = 0;
  EVERSTEP_CHECK(waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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

std::vector<Json> JobRunner::Messages(const std::string& message) const {
  std::vector<Json> found;
  std::istringstream lines(Output());
  for (std::string line; std::getline(lines, line);) {
    auto json = ParseJson(line, "output");
    if (json && JsonValue<std::string>(*json, "message", "") == message) {
      found.push_back(std::move(*json));
    }
  }
  return found;
}

std::vector<int> JobRunner::ReportedSteps() const {
  std::vector<int> steps;
  for (const Json& step : Messages("step")) steps.push_back(JsonValue<int>(step, "step", -1));
  return steps;
}

std::vector<int> JobRunner::LoggedSteps() const {
  std::vector<int> steps;
  std::istringstream lines(ReadAll(results() / "trainer_log.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = ParseJson(line, "trainer_log.jsonl");
    if (json && json->contains("loss")) steps.push_back(JsonValue<int>(*json, "current_steps", -1));
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
                          std::to_string(shape.steps) + "/" + DumpJson(Json(shape.train));
  if (const auto found = known.find(key); found != known.end()) return found->second;
  JobRunner runner(shape);
  runner.Start();
  EVERSTEP_CHECK(runner.Wait() == 0);
  return known[key] = runner.WeightsSha256();
}

std::vector<int> StepsUpTo(int last) {
  std::vector<int> steps(static_cast<size_t>(last));
  std::iota(steps.begin(), steps.end(), 1);
  return steps;
}

std::vector<std::string> CheckpointsIn(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.find("checkpoint-") != std::string::npos) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
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
