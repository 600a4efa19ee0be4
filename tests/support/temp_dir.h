// A directory of its own for one test; it goes with everything in it.
#ifndef EVERSTEP_TESTS_SUPPORT_TEMP_DIR_H_
#define EVERSTEP_TESTS_SUPPORT_TEMP_DIR_H_

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace everstep {

class TempDir {
 public:
  TempDir() : path_(std::filesystem::temp_directory_path().string() + "/everstep-test-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace everstep

#endif  // EVERSTEP_TESTS_SUPPORT_TEMP_DIR_H_
