// Where tests find what is not committed.
#ifndef EVERSTEP_TESTS_SUPPORT_PATHS_H_
#define EVERSTEP_TESTS_SUPPORT_PATHS_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace everstep {

// Everstep's cache folder, as scripts/ use it.
inline std::string CacheDir() {
  if (const char* cache = std::getenv("EVERSTEP_CACHE"); cache != nullptr && *cache != '\0') {
    return cache;
  }
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) + "/.cache/everstep";
}

// Folder of a real tokenizer: llama3_1, qwen3, llama2, or one cut down to 2,048 ids: tiny-llama,
// tiny-llama31-rope, tiny-mistral, tiny-qwen2, tiny-qwen3. They are fetched, not committed; the
// calling test fails when the folder is missing.
inline std::string TestTokenizerDir(const std::string& name) {
  const std::string directory = CacheDir() + "/test-tokenizers/" + name;
  if (!std::filesystem::exists(directory + "/tokenizer.json")) {
    ADD_FAILURE() << directory << "/tokenizer.json is missing: run scripts/fetch-test-tokenizers";
  }
  return directory;
}

// A committed file under tests/golden/.
inline std::string GoldenPath(const std::string& name) {
  return std::string(EVERSTEP_SOURCE_DIR) + "/tests/golden/" + name;
}

}  // namespace everstep

#endif  // EVERSTEP_TESTS_SUPPORT_PATHS_H_
