// The heartbeat of a process, in memory that it shares with its supervisor.
//
// A thread of the process beats every few milliseconds into a memfd. It stops the instant the
// process is killed, whatever its size, while end-of-file and waitpid come only after the kernel
// has freed the process's memory (80 ms per GB). Silence alone proves nothing (the machine may be
// starved): the reader decides with other evidence.
//
// The memory also carries where the process is: generation, step and phase.
#ifndef EVERSTEP_WORKER_RECOVERY_HEARTBEAT_H_
#define EVERSTEP_WORKER_RECOVERY_HEARTBEAT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "common/clock.h"
#include "common/result.h"

namespace everstep {

inline constexpr std::chrono::milliseconds kBeatInterval{5};
inline constexpr char kHeartbeatFdVariable[] = "EVERSTEP_HEARTBEAT_FD";
inline constexpr size_t kPhaseBytes = 32;  // a longer phase name is cut

struct HeartbeatPage;  // the layout of the shared memory, see heartbeat.cc

// What the memory says at one moment.
struct Beat {
  uint64_t beats = 0;  // 0: the process has not beaten yet, and perhaps never will
  TimePoint time{};    // of the last beat; comparable between processes of one machine
  uint64_t generation = 0;
  int64_t step = 0;
  std::string phase;
  // Generation, step and phase are of one moment; not when the writer stands in the middle.
  bool whole = false;
};

// The supervisor's side: owns the memory.
class HeartbeatReader {
 public:
  static Result<HeartbeatReader> Create();
  HeartbeatReader(HeartbeatReader&& other) noexcept;
  HeartbeatReader& operator=(HeartbeatReader&& other) noexcept;
  ~HeartbeatReader();

  // To be inherited by the process (close-on-exec is set; clear it in the child).
  int fd() const { return fd_; }
  Beat Read() const;
  // Back to "has not beaten yet": before the memory is given to another process.
  void Reset();

 private:
  HeartbeatReader(int fd, HeartbeatPage* page) : fd_(fd), page_(page) {}

  int fd_ = -1;
  HeartbeatPage* page_ = nullptr;
};

// The process's side: beats from construction to destruction. Thread-safe.
class HeartbeatWriter {
 public:
  // Over the memory that EVERSTEP_HEARTBEAT_FD names; null when it is not set (no supervisor).
  static Result<std::unique_ptr<HeartbeatWriter>> FromEnvironment();
  // Takes ownership of `fd`.
  static Result<std::unique_ptr<HeartbeatWriter>> Open(int fd);
  ~HeartbeatWriter();
  HeartbeatWriter(const HeartbeatWriter&) = delete;
  HeartbeatWriter& operator=(const HeartbeatWriter&) = delete;

  // Costs a few stores; never blocks on the reader.
  void SetProgress(uint64_t generation, int64_t step, std::string_view phase);

 private:
  explicit HeartbeatWriter(HeartbeatPage* page);
  void BeatUntilStopped();

  HeartbeatPage* const page_;
  std::mutex progress_mutex_;  // between SetProgress callers
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_RECOVERY_HEARTBEAT_H_
