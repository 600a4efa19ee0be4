#include "worker/supervisor/detector.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "common/strings.h"

namespace everstep {
namespace {

// include/linux/sched.h: the task has begun to exit.
constexpr unsigned long kPfExiting = 0x4;
// Fields of /proc/<pid>/stat as proc(5) counts them, from 1.
constexpr int kStateField = 3;
constexpr int kFlagsField = 9;
constexpr int kExitCodeField = 52;

// The first 4 KiB, which hold all that is needed; false when the process is gone.
bool ReadProc(pid_t pid, const char* file, std::string& text) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + file;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno != ENOENT;
  std::array<char, 4096> bytes;
  const ssize_t size = read(fd, bytes.data(), bytes.size());
  const int error = errno;
  close(fd);
  if (size < 0) return error != ESRCH;
  text.assign(bytes.data(), static_cast<size_t>(size));
  return true;
}

bool HasKill(std::string_view mask) {
  return (std::strtoull(std::string(Trim(mask)).c_str(), nullptr, 16) >> (SIGKILL - 1) & 1) != 0;
}

}  // namespace

void ParseProcStat(std::string_view text, Evidence& evidence) {
  // "pid (name) state ...": the name may hold anything, so the last parenthesis counts.
  const size_t end = text.rfind(')');
  if (end == std::string_view::npos) return;
  const auto fields = SplitAndTrim(text.substr(end + 1), ' ');
  const auto field = [&](int number) {
    const auto index = static_cast<size_t>(number - kStateField);
    return index < fields.size() ? fields[index] : std::string();
  };
  if (!field(kStateField).empty()) evidence.state = field(kStateField)[0];
  evidence.exiting = (std::strtoul(field(kFlagsField).c_str(), nullptr, 10) & kPfExiting) != 0;
  // Meaningful only once it is set, which is a moment after the flag.
  const int status = std::atoi(field(kExitCodeField).c_str());
  const bool final = evidence.state == 'Z' || evidence.state == 'X';
  if (final || (evidence.exiting && status != 0)) evidence.wait_status = status;
}

void ParseProcStatus(std::string_view text, Evidence& evidence) {
  for (const std::string& line : SplitAndTrim(text, '\n')) {
    const std::string_view view = line;
    const size_t colon = view.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = view.substr(0, colon);
    const std::string_view value = view.substr(colon + 1);
    if (key == "SigPnd" || key == "ShdPnd") evidence.kill_pending |= HasKill(value);
    if (key == "CoreDumping") evidence.core_dumping = Trim(value) == "1";
  }
}

Evidence ReadEvidence(pid_t pid) {
  Evidence evidence;
  std::string text;
  if (!ReadProc(pid, "stat", text)) {
    evidence.gone = true;
    return evidence;
  }
  ParseProcStat(text, evidence);
  text.clear();
  if (!ReadProc(pid, "status", text)) evidence.gone = true;
  ParseProcStatus(text, evidence);
  return evidence;
}

bool IsSuspect(const Beat& beat, TimePoint now) {
  return beat.beats > 0 && now - beat.time > kSuspicionAfter;
}

Verdict Judge(const Beat& beat, TimePoint now, const Evidence& evidence) {
  const bool dead = evidence.gone || evidence.state == 'Z' || evidence.state == 'X' ||
                    evidence.exiting || evidence.core_dumping || evidence.kill_pending;
  if (dead) return Verdict::kDead;
  return IsSuspect(beat, now) ? Verdict::kSuspect : Verdict::kAlive;
}

}  // namespace everstep
