#include "worker/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "common/files.h"
#include "worker/checkpoint/file_writer.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";

// A checkpoint can be damaged by whoever writes to the volume: sizes are read, never trusted.
Status CheckSizes(const std::string& path, const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) {
    const fs::path full = fs::path(path) / file.path;
    std::error_code error;
    const uint64_t bytes = fs::file_size(full, error);
    if (error) return DataLoss(full.string() + ": is missing: " + error.message());
    if (bytes != file.bytes) {
      return DataLoss(full.string() + ": has " + std::to_string(bytes) +
                      " bytes, the manifest says " + std::to_string(file.bytes));
    }
  }
  return {};
}

// Why `path` cannot be resumed from, or nothing.
std::optional<std::string> ReasonToSkip(const std::string& path, int64_t step) {
  const auto manifest = VerifyCheckpoint(path);
  if (!manifest) return manifest.error().message;
  if (manifest->step != step) {
    return path + ": holds step " + std::to_string(manifest->step) + ", not what its name says";
  }
  if (!manifest->resumable) return path + ": has no optimizer state (save_only_model)";
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> StepOfCheckpointName(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  int64_t step = -1;
  const auto [stop, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

std::string CheckpointName(int64_t step) { return std::string(kPrefix) + std::to_string(step); }

Result<Manifest> InspectCheckpoint(const std::string& path) {
  const std::string name = (fs::path(path) / kManifestFile).string();
  auto text = ReadFile(name);
  if (!text && text.error().code == ErrorCode::kNotFound) {
    return NotFound(path + ": has no " + kManifestFile +
                    ": it is incomplete or was not written by Everstep");
  }
  if (!text) return tl::unexpected(std::move(text).error());
  ASSIGN_OR_RETURN(Manifest manifest, Manifest::Parse(*text, name));
  RETURN_IF_ERROR(CheckSizes(path, manifest));
  return manifest;
}

Result<Manifest> VerifyCheckpoint(const std::string& path) {
  ASSIGN_OR_RETURN(Manifest manifest, InspectCheckpoint(path));
  for (const ManifestFile& file : manifest.files) {
    const std::string full = (fs::path(path) / file.path).string();
    ASSIGN_OR_RETURN(const std::string checksum, ChecksumOfFile(full));
    if (checksum != file.checksum) {
      return DataLoss(full + ": its content does not fit the checksum in the manifest");
    }
  }
  return manifest;
}

Result<LoadedCheckpoint> LoadCheckpoint(const std::string& path) {
  ASSIGN_OR_RETURN(Manifest manifest, VerifyCheckpoint(path));
  if (!manifest.resumable) {
    return MakeError(ErrorCode::kFailedPrecondition,
                     path +
                         ": has no optimizer state (save_only_model): name another checkpoint, "
                         "or start from its weights with model_name_or_path");
  }
  const std::string state_path = (fs::path(path) / kStateFile).string();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(state_path));
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, state_path));
  ASSIGN_OR_RETURN(ResumeState state, ResumeState::FromJson(json));
  ASSIGN_OR_RETURN(SafetensorsFile optimizer,
                   SafetensorsFile::Open((fs::path(path) / kOptimizerFile).string()));
  return LoadedCheckpoint{path, std::move(manifest), std::move(state), std::move(optimizer)};
}

Result<FoundCheckpoints> FindNewestCheckpoint(const std::string& directory) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (const auto step = StepOfCheckpointName(entry->path().filename().string())) {
      steps.push_back(*step);
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return MakeError(ErrorCode::kFailedPrecondition,
                     directory + ": cannot be listed: " + error.message());
  }
  std::ranges::sort(steps, std::greater());
  FoundCheckpoints found;
  for (const int64_t step : steps) {
    const std::string path = (fs::path(directory) / CheckpointName(step)).string();
    if (const auto reason = ReasonToSkip(path, step)) {
      found.skipped.push_back({path, *reason});
      continue;
    }
    found.newest = path;
    found.step = step;
    break;
  }
  return found;
}

}  // namespace everstep
