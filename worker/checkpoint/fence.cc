#include "worker/checkpoint/fence.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "common/files.h"
#include "common/json.h"
#include "common/log.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

// Held until destroyed, or until the process dies: the kernel gives it back.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory) {
    const std::string path = (fs::path(directory) / ".everstep-lock").string();
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) return;
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::seconds(GenerationFence::kLockTimeoutSeconds);
    while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const bool waits = errno == EWOULDBLOCK || errno == EINTR;
      if (waits && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      LogWarning("the lock of the output directory cannot be had: going on without",
                 {{"path", path}, {"error", ErrnoText(errno)}});
      break;
    }
  }
  ~DirectoryLock() {
    if (fd_ >= 0) close(fd_);
  }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int fd_ = -1;
};

std::string FencePath(const std::string& directory) {
  return (fs::path(directory) / ".everstep-fence.json").string();
}

tl::unexpected<Error> Fenced(const std::string& directory, const std::string& by) {
  return MakeError(ErrorCode::kAborted, directory + ": " + by + " has taken over");
}

std::string GenerationName(uint64_t generation) {
  return "generation " + std::to_string(generation);
}

}  // namespace

// A fence that cannot be understood fences nobody: ours are replaced in one step, it is not ours.
Result<GenerationFence::Owner> GenerationFence::Read() const {
  auto text = ReadFile(FencePath(directory_));
  if (!text && text.error().code == ErrorCode::kNotFound) return Owner{};
  if (!text) return tl::unexpected(std::move(text).error());
  const auto json = ParseJson(*text, FencePath(directory_));
  if (!json) return Owner{};
  return Owner{JsonValue<std::string>(*json, "run", ""),
               JsonValue<uint64_t>(*json, "generation", 0)};
}

Status GenerationFence::Write() {
  const Json fence{{"run", run_}, {"generation", generation_.load()}};
  RETURN_IF_ERROR(WriteFileAtomically(FencePath(directory_), DumpJson(fence) + "\n"));
  written_ = true;
  return {};
}

Status GenerationFence::Raise(uint64_t generation) {
  const DirectoryLock lock(directory_);
  ASSIGN_OR_RETURN(const Owner owner, Read());
  const bool same_run = owner.run == run_;
  if (written_ && !same_run) return Fenced(directory_, "run '" + owner.run + "'");
  if (same_run && owner.generation > generation) {
    return Fenced(directory_, GenerationName(owner.generation));
  }
  generation_ = generation;
  written_ = same_run && owner.generation == generation;
  return written_ ? Status() : Write();
}

Status GenerationFence::Guard(const std::function<Status()>& commit) {
  const DirectoryLock lock(directory_);
  ASSIGN_OR_RETURN(const Owner owner, Read());
  if (generation_ == 0) return commit();
  const bool same_run = owner.run == run_;
  if (written_ && !same_run) return Fenced(directory_, "run '" + owner.run + "'");
  if (same_run && owner.generation > generation_) {
    return Fenced(directory_, GenerationName(owner.generation));
  }
  if (!written_) RETURN_IF_ERROR(Write());
  return commit();
}

}  // namespace everstep
