// What the tests of the hub share: a cache of their own, and a hub with a small model.
#ifndef EVERSTEP_TESTS_UNIT_WORKER_HUB_HUB_FIXTURE_H_
#define EVERSTEP_TESTS_UNIT_WORKER_HUB_HUB_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "tests/unit/worker/hub/fake_hub.h"
#include "worker/hub/hub.h"

namespace everstep {

inline std::string Weights(char letter = 'w') { return std::string(300000, letter); }

class HubTest : public testing::Test {
 protected:
  HubTest() {
    std::string pattern = testing::TempDir() + "everstep_hub_XXXXXX";
    cache_ = mkdtemp(pattern.data());
  }
  ~HubTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(cache_, ignored);
  }

  static void AddModel(FakeHub* hub) {
    hub->AddFile("config.json", "{}");
    hub->AddFile("tokenizer.json", "{\"model\": 1}");
    hub->AddFile("model.safetensors", Weights(), true);
    hub->AddFile("README.md", "read me");
    hub->AddFile("pytorch_model.bin", "pickle", true);
  }

  HubOptions Options(const FakeHub& hub) {
    HubOptions options;
    options.endpoint = hub.url();
    options.cache_dir = cache_;
    options.progress = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    options.sleep = [this](Duration pause) {
      const std::lock_guard lock(mutex_);
      pauses_.push_back(Seconds(pause));
    };
    return options;
  }

  std::string Model() const { return cache_ + "/models--org--tiny"; }
  std::string Snapshot() const { return Model() + "/snapshots/" + kTinyCommit; }
  std::vector<std::string> Blobs() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(Model() + "/blobs")) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  std::string cache_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::vector<double> pauses_;
};

}  // namespace everstep

#endif  // EVERSTEP_TESTS_UNIT_WORKER_HUB_HUB_FIXTURE_H_
