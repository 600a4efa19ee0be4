// A directory with everything that `everstep run` needs, for a test to spoil one thing of it.
#ifndef EVERSTEP_TESTS_E2E_BAD_INPUT_WORKSPACE_H_
#define EVERSTEP_TESTS_E2E_BAD_INPUT_WORKSPACE_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/json.h"
#include "tests/support/temp_dir.h"

namespace everstep::testing {

struct RunResult {
  int exit_code = -1;
  std::string out;
  std::string errors;  // with the workspace's path written as DIR
};

class BadInputWorkspace {
 public:
  BadInputWorkspace();

  std::filesystem::path path() const { return path_; }
  std::filesystem::path model() const { return path_ / "model"; }
  std::filesystem::path data() const { return path_ / "data"; }
  std::filesystem::path output() const { return path_ / "out"; }

  // Keys of the training file. They keep their order, and a new one comes last.
  void Train(const std::string& key, const std::string& value);
  void DropTrain(const std::string& key);
  // A line of the spec, without its indentation.
  void Spec(const std::string& line) { spec_.push_back(line); }
  // Instead of the manifest made of the above.
  void WriteManifest(const std::string& text);
  void AddArgument(const std::string& argument) { arguments_.push_back(argument); }

  void Write(const std::filesystem::path& file, const std::string& text) const;
  // The file of the data set that is trained on, and its entry in dataset_info.json.
  void Rows(const std::string& text) const { Write(data() / "rows.json", text); }
  void DatasetInfo(const std::string& text) const { Write(data() / "dataset_info.json", text); }
  // Changes config.json of the model.
  void ModelConfig(const std::function<void(Json&)>& change) const;
  // Changes the header of model.safetensors; the tensors' bytes stay.
  void WeightsHeader(const std::function<void(Json&)>& change) const;
  // Instead of the header, a text (its length is right).
  void WeightsHeaderText(const std::string& header) const;
  void TruncateWeights(uint64_t bytes_missing) const;

  // `everstep run job.yaml --quiet`.
  RunResult Run() const;

 private:
  std::string Manifest() const;

  TempDir temporary_;
  const std::filesystem::path path_ = temporary_.path();
  std::vector<std::pair<std::string, std::string>> train_;
  std::vector<std::string> spec_;
  std::vector<std::string> arguments_;
  bool own_manifest_ = false;
};

}  // namespace everstep::testing

#endif  // EVERSTEP_TESTS_E2E_BAD_INPUT_WORKSPACE_H_
