#include "worker/output_directory.h"

#include <unistd.h>

#include <filesystem>

#include "common/files.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

// Of the files that are ours and nobody's results: other ranks may be making them at this moment.
const std::string kOwnPrefix = ".everstep-";

bool IsEmpty(const fs::path& directory) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (!entry.path().filename().string().starts_with(kOwnPrefix)) return false;
  }
  return true;
}

bool HoldsCheckpoint(const fs::path& directory) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().filename().string().starts_with("checkpoint-")) return true;
  }
  return false;
}

}  // namespace

std::string ResolveOutputDirectory(const std::string& output_dir,
                                   const std::string& checkpoint_path) {
  const fs::path path(output_dir);
  if (path.is_absolute() || checkpoint_path.empty()) {
    return fs::absolute(path).lexically_normal().string();
  }
  return (fs::absolute(checkpoint_path) / path).lexically_normal().string();
}

Status PrepareOutputDirectory(const std::string& directory, const OutputDirectoryRules& rules) {
  std::error_code ignored;
  if (fs::exists(directory, ignored) && !fs::is_directory(directory, ignored)) {
    return InvalidArgument(directory + ": output_dir is a file: name a directory");
  }
  if (const Status made = MakeDirectories(directory); !made) {
    return InvalidArgument(made.error().message + " (output_dir): choose one you may write to");
  }
  const std::string probe =
      (fs::path(directory) / (kOwnPrefix + "write-test." + std::to_string(getpid())));
  if (const Status written = WriteFileAtomically(probe, ""); !written) {
    if (written.error().code == ErrorCode::kResourceExhausted) return {};
    return InvalidArgument(directory +
                           ": output_dir cannot be written: " + written.error().message);
  }
  fs::remove(probe, ignored);
  if (!rules.first_start || rules.overwrite || rules.resumes_from) return {};
  if (!IsEmpty(directory) && !HoldsCheckpoint(directory)) {
    return InvalidArgument(directory +
                           ": output_dir is not empty and holds no checkpoint to continue from: "
                           "set overwrite_output_dir: true or choose another directory");
  }
  return {};
}

}  // namespace everstep
