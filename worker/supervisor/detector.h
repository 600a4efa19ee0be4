// Is a process that has fallen silent dead? Pure: from what was seen to a verdict.
//
// Silence raises suspicion only: on a starved machine a live process's heartbeat stalls too. What
// the kernel says of the process decides.
#ifndef EVERSTEP_WORKER_SUPERVISOR_DETECTOR_H_
#define EVERSTEP_WORKER_SUPERVISOR_DETECTOR_H_

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "worker/recovery/heartbeat.h"

namespace everstep {

// Three beats missed. A false suspicion costs one look at /proc, so this may be short.
inline constexpr std::chrono::milliseconds kSuspicionAfter{15};

// What the kernel says of a process.
struct Evidence {
  bool gone = false;          // no such process
  char state = '?';           // of /proc/<pid>/stat: R, S, D, T, Z, X, ...
  bool exiting = false;       // it is on its way out (PF_EXITING), memory not freed yet
  bool core_dumping = false;  // it crashed and its memory is being written to disk
  bool kill_pending = false;  // SIGKILL is on its way to it
  // As waitpid would give it; known early, while the process is still exiting.
  std::optional<int> wait_status;
};

// Reads /proc/<pid>/{stat,status}. Fast: two small files.
Evidence ReadEvidence(pid_t pid);
// The parts of it, from the files' texts.
void ParseProcStat(std::string_view text, Evidence& evidence);
void ParseProcStatus(std::string_view text, Evidence& evidence);

enum class Verdict { kAlive, kSuspect, kDead };

// False before the first beat: then there is nothing to miss, and waitpid alone tells.
bool IsSuspect(const Beat& beat, TimePoint now);
// kDead only on the kernel's word. A stopped (T) or starved process is a suspect, however long.
Verdict Judge(const Beat& beat, TimePoint now, const Evidence& evidence);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_SUPERVISOR_DETECTOR_H_
