#include "worker/checkpoint/checkpoint_store.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <string_view>

#include "common/check.h"
#include "common/files.h"
#include "common/log.h"
#include "common/strings.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

constexpr char kTemporary[] = "tmp";      // not committed yet
constexpr char kReplaced[] = "replaced";  // made way for a new one that is not in place yet
constexpr char kTrash[] = "trash";        // being removed

Result<uint64_t> FreeSpaceOf(const std::string& path) {
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0) {
    return MakeError(ErrorCode::kFailedPrecondition,
                     path + ": cannot ask for free space: " + ErrnoText(errno));
  }
  return uint64_t{info.f_bavail} * info.f_frsize;
}

StoreOptions WithDefaults(StoreOptions options) {
  if (!options.free_space) options.free_space = FreeSpaceOf;
  return options;
}

// "name" of a hidden path ".name.<purpose>.g<generation>", or "".
std::string NameOfHidden(const std::string& file, std::string_view purpose) {
  const size_t dot = file.rfind(".g");
  if (file.empty() || file.front() != '.' || dot == std::string::npos) return "";
  const bool digits =
      dot + 2 < file.size() && file.find_first_not_of("0123456789", dot + 2) == std::string::npos;
  const std::string marker = "." + std::string(purpose);
  const std::string head = file.substr(0, dot);
  if (!digits || !head.ends_with(marker) || head.size() <= marker.size() + 1) return "";
  return head.substr(1, head.size() - marker.size() - 1);
}

Status RemoveTree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) {
    return MakeError(ErrorCode::kFailedPrecondition,
                     path + ": cannot be removed: " + error.message());
  }
  return {};
}

Status Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return {};
  return MakeError(errno == ENOSPC ? ErrorCode::kResourceExhausted : ErrorCode::kFailedPrecondition,
                   from + ": cannot be renamed to " + to + ": " + ErrnoText(errno));
}

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

tl::unexpected<Error> NoSpace(const std::string& what, uint64_t needed, uint64_t missing) {
  return MakeError(ErrorCode::kResourceExhausted,
                   what + ": no space: " + FormatBytes(needed) + " are needed and " +
                       std::to_string(missing) + " bytes (" + FormatBytes(missing) +
                       ") are missing: free space on the volume or lower save_total_limit; earlier "
                       "checkpoints are kept");
}

// An error of a write that came as far as `written` of `needed` bytes.
Error Explained(const Error& error, const std::string& what, uint64_t needed, uint64_t written) {
  if (error.code != ErrorCode::kResourceExhausted) return error;
  const uint64_t missing = needed > written ? needed - written : 1;
  return {error.code, NoSpace(what, needed, missing).value().message + " (" + error.message + ")"};
}

}  // namespace

CheckpointStore::CheckpointStore(std::string directory, StoreOptions options)
    : directory_(std::move(directory)),
      options_(WithDefaults(std::move(options))),
      fence_(directory_, options_.run) {}

std::string CheckpointStore::HiddenPath(const std::string& name, const char* purpose) const {
  const std::string hidden =
      "." + name + "." + purpose + ".g" + std::to_string(fence_.generation());
  return (fs::path(directory_) / hidden).string();
}

Status CheckpointStore::TakeOver(uint64_t generation) {
  RETURN_IF_ERROR(MakeDirectories(directory_));
  const Status raised = fence_.Raise(generation);
  if (!raised && raised.error().code != ErrorCode::kResourceExhausted) return raised;
  RemoveStale();
  return {};
}

// What cannot be removed takes space and does no other harm.
void CheckpointStore::RemoveStale() {
  const auto warn = [](const Status& status) {
    if (!status) LogWarning("not removed", {{"error", status.error().message}});
  };
  const std::lock_guard lock(mutex_);
  for (const std::string& name : NamesIn(directory_)) {
    const std::string path = (fs::path(directory_) / name).string();
    if (in_progress_.contains(path)) continue;
    // A replacement was cut off between its two renames: what it replaced is still the newest.
    const std::string replaced = NameOfHidden(name, kReplaced);
    const std::string original = (fs::path(directory_) / replaced).string();
    if (!replaced.empty() && !fs::exists(original)) {
      warn(Rename(path, original));
      continue;
    }
    if (!replaced.empty() || !NameOfHidden(name, kTemporary).empty() ||
        !NameOfHidden(name, kTrash).empty()) {
      LogInfo("removing what was left half-written", {{"path", path}});
      warn(RemoveTree(path));
    }
  }
}

Status CheckpointStore::CheckSpace(uint64_t bytes, const std::string& what) const {
  ASSIGN_OR_RETURN(const uint64_t free, options_.free_space(directory_));
  if (free >= bytes) return {};
  return NoSpace(what, bytes, bytes - free);
}

Result<std::string> CheckpointStore::Write(const CheckpointContent& content) {
  const std::lock_guard writing(writing_);
  RETURN_IF_ERROR(MakeDirectories(directory_));
  const std::string name = CheckpointName(content.step);
  const std::string path = (fs::path(directory_) / name).string();
  ASSIGN_OR_RETURN(const uint64_t needed, BytesNeeded(AllFiles(content)));
  RETURN_IF_ERROR(CheckSpace(needed, path));

  const std::string temporary = HiddenPath(name, kTemporary);
  {
    const std::lock_guard lock(mutex_);
    in_progress_.insert(temporary);
  }
  uint64_t written = 0;
  Status status = RemoveTree(temporary);
  if (status) {
    status = WriteCheckpointFiles(temporary, content, fence_.generation(), &written);
  }
  if (status) status = fence_.Guard([&] { return Commit(temporary, path); });
  // What it replaced, or what there is of it. Left over, it is found at the next takeover.
  (void)RemoveTree(temporary);
  const std::lock_guard lock(mutex_);
  in_progress_.erase(temporary);
  if (!status) return tl::unexpected(Explained(status.error(), path, needed, written));
  return path;
}

// Moves a complete directory to its name, in one step even where another one has that name.
Status CheckpointStore::Commit(const std::string& temporary, const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    RETURN_IF_ERROR(Rename(temporary, path));
    return SyncDirectory(directory_);
  }
  if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    return SyncDirectory(directory_);
  }
  // A file system without exchange: RemoveStale undoes the first rename if the second is not done.
  const std::string replaced = HiddenPath(fs::path(path).filename().string(), kReplaced);
  RETURN_IF_ERROR(Rename(path, replaced));
  if (const Status moved = Rename(temporary, path); !moved) {
    (void)Rename(replaced, path);
    return moved;
  }
  RETURN_IF_ERROR(SyncDirectory(directory_));
  return RemoveTree(replaced);
}

Status CheckpointStore::WriteFinal(const FileSet& files) {
  const std::lock_guard writing(writing_);
  RETURN_IF_ERROR(MakeDirectories(directory_));
  ASSIGN_OR_RETURN(const uint64_t needed, BytesNeeded(files));
  RETURN_IF_ERROR(CheckSpace(needed, directory_));
  // Names are made once: the generation may change while the files are written.
  std::map<std::string, std::string> temporaries;
  const auto hidden = [&](const std::string& path) {
    EVERSTEP_CHECK(path.find('/') == std::string::npos);
    const std::string& temporary = temporaries[path] = HiddenPath(path, kTemporary);
    const std::lock_guard lock(mutex_);
    in_progress_.insert(temporary);
    return temporary;
  };
  WrittenFiles written;
  Status status = WriteFiles(files, hidden, &written);
  if (status) {
    status = fence_.Guard([&]() -> Status {
      for (const auto& [path, temporary] : temporaries) {
        RETURN_IF_ERROR(Rename(temporary, (fs::path(directory_) / path).string()));
      }
      return SyncDirectory(directory_);
    });
  }
  const std::lock_guard lock(mutex_);
  for (const std::string& path : in_progress_) (void)RemoveTree(path);
  in_progress_.clear();
  if (!status) {
    return tl::unexpected(Explained(status.error(), directory_, needed, written.bytes));
  }
  return {};
}

}  // namespace everstep
