// A folder of small data sets, and a training file's settings that use them.
#ifndef EVERSTEP_TESTS_UNIT_WORKER_DATA_DATASET_FIXTURE_H_
#define EVERSTEP_TESTS_UNIT_WORKER_DATA_DATASET_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/paths.h"
#include "tests/unit/worker/data/golden.h"
#include "worker/data/prepare.h"

namespace everstep {

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    static int number = 0;
    directory_ =
        std::filesystem::temp_directory_path() /
        ("everstep-data-test-" + std::to_string(getpid()) + "-" + std::to_string(number++));
    std::filesystem::create_directories(directory_);
    config_.model.model_name_or_path = "the-model";
    config_.data.dataset_dir = directory_.string();
    config_.data.dataset = {"d"};
    config_.data.template_name = "llama3";
    config_.training.do_train = true;
  }
  ~DatasetTest() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((directory_ / name).parent_path());
    std::ofstream(directory_ / name) << text;
  }
  void WriteInfo(const std::string& entry) { Write("dataset_info.json", "{\"d\": " + entry + "}"); }
  // One data set "d" with this entry in dataset_info.json and this file.
  void WriteSet(const std::string& file, const std::string& text, const std::string& more = "") {
    WriteInfo("{\"file_name\": \"" + file + "\"" + more + "}");
    Write(file, text);
  }

  Result<PreparedData> Prepare(const std::string& tokenizer = "tiny-llama") {
    auto loaded = Tokenizer::Load(TestTokenizerDir(tokenizer));
    if (!loaded) return tl::unexpected<Error>(loaded.error());
    return PrepareData(config_, *loaded, GoldenDay());
  }
  // The error of preparing, with the folder's name taken out.
  std::string Failure(const std::string& tokenizer = "tiny-llama") {
    const auto prepared = Prepare(tokenizer);
    if (prepared) return "(no error)";
    std::string message = prepared.error().message;
    const std::string folder = directory_.string() + "/";
    for (size_t at = message.find(folder); at != std::string::npos; at = message.find(folder)) {
      message.erase(at, folder.size());
    }
    return message;
  }

  std::filesystem::path directory_;
  TrainConfig config_;
};

}  // namespace everstep

#endif  // EVERSTEP_TESTS_UNIT_WORKER_DATA_DATASET_FIXTURE_H_
