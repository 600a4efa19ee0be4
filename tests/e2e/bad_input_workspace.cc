#include "tests/e2e/bad_input_workspace.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "common/check.h"
#include "tests/e2e/job_runner.h"

namespace everstep::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kRows[] = R"([
  {"instruction": "Name a colour.", "input": "", "output": "Blue."},
  {"instruction": "Count to three.", "input": "", "output": "One, two, three."},
  {"instruction": "Say hello.", "input": "", "output": "Hello."},
  {"instruction": "Name a fruit.", "input": "", "output": "A pear."}
]
)";

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  return std::move(content).str();
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

uint64_t HeaderLength(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  return length;
}

}  // namespace

BadInputWorkspace::BadInputWorkspace() {
  MakeTinyModel(model());
  fs::create_directories(data());
  DatasetInfo(R"({"rows": {"file_name": "rows.json"}})");
  Rows(kRows);
  train_ = {{"model_name_or_path", model().string()},
            {"stage", "sft"},
            {"do_train", "true"},
            {"finetuning_type", "lora"},
            {"template", "llama3"},
            {"dataset", "rows"},
            {"dataset_dir", data().string()},
            {"cutoff_len", "64"},
            {"max_steps", "2"},
            {"output_dir", output().string()}};
}

void BadInputWorkspace::Train(const std::string& key, const std::string& value) {
  for (auto& [known, old] : train_) {
    if (known == key) {
      old = value;
      return;
    }
  }
  train_.emplace_back(key, value);
}

void BadInputWorkspace::DropTrain(const std::string& key) {
  std::erase_if(train_, [&](const auto& entry) { return entry.first == key; });
}

void BadInputWorkspace::WriteManifest(const std::string& text) {
  own_manifest_ = true;
  Write(path_ / "job.yaml", text);
}

void BadInputWorkspace::Write(const fs::path& file, const std::string& text) const {
  std::ofstream out(file, std::ios::binary);
  out << text;
  EVERSTEP_CHECK(out.flush().good());
}

void BadInputWorkspace::ModelConfig(const std::function<void(Json&)>& change) const {
  Json config = Json::parse(ReadAll(model() / "config.json"));
  change(config);
  Write(model() / "config.json", config.dump(2));
}

void BadInputWorkspace::WeightsHeader(const std::function<void(Json&)>& change) const {
  const std::string file = ReadAll(model() / "model.safetensors");
  Json header = Json::parse(file.substr(sizeof(uint64_t), HeaderLength(file)));
  change(header);
  WeightsHeaderText(header.dump());
}

void BadInputWorkspace::WeightsHeaderText(const std::string& header) const {
  const std::string file = ReadAll(model() / "model.safetensors");
  const uint64_t length = header.size();
  std::string changed(sizeof(length), '\0');
  std::memcpy(changed.data(), &length, sizeof(length));
  changed += header + file.substr(sizeof(length) + HeaderLength(file));
  Write(model() / "model.safetensors", changed);
}

void BadInputWorkspace::TruncateWeights(uint64_t bytes_missing) const {
  const fs::path file = model() / "model.safetensors";
  fs::resize_file(file, fs::file_size(file) - bytes_missing);
}

std::string BadInputWorkspace::Manifest() const {
  std::ostringstream yaml;
  yaml << "apiVersion: everstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: bad}\nspec:\n"
       << "  replicas: 1\n";
  for (const std::string& line : spec_) yaml << "  " << line << "\n";
  yaml << "  train:\n";
  for (const auto& [key, value] : train_) yaml << "    " << key << ": " << value << "\n";
  return std::move(yaml).str();
}

RunResult BadInputWorkspace::Run() const {
  if (!own_manifest_) Write(path_ / "job.yaml", Manifest());
  std::string command = "cd '" + path_.string() + "' && exec timeout 60 '" + EVERSTEP_BINARY_DIR +
                        "/bin/everstep' run job.yaml --quiet";
  for (const std::string& argument : arguments_) command += " " + argument;
  command += " >stdout.txt 2>stderr.txt";
  const int status = std::system(command.c_str());
  RunResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = ReadAll(path_ / "stdout.txt");
  result.errors = Replaced(ReadAll(path_ / "stderr.txt"), path_.string(), "DIR");
  return result;
}

}  // namespace everstep::testing
