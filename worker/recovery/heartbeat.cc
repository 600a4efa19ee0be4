#include "worker/recovery/heartbeat.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace everstep {

// Both processes are of one build, so the layout needs no versions beyond the magic number. All
// fields are lock-free atomics: valid between processes, and torn reads are found by `sequence`.
struct HeartbeatPage {
  static constexpr uint64_t kMagic = 0x45565354'42454154;  // "EVSTBEAT"
  static constexpr size_t kPhaseWords = kPhaseBytes / sizeof(uint64_t);

  std::atomic<uint64_t> magic{kMagic};
  std::atomic<uint64_t> beats{0};
  std::atomic<int64_t> beat_time_ns{0};  // CLOCK_MONOTONIC
  std::atomic<uint64_t> sequence{0};     // odd while the rest is being written
  std::atomic<uint64_t> generation{0};
  std::atomic<int64_t> step{0};
  std::array<std::atomic<uint64_t>, kPhaseWords> phase{};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

namespace {

// A reader gives up on a consistent set of fields after this many tries: the writer was stopped
// in the middle, and what is there is good enough to be shown.
constexpr int kReadTries = 100;

Result<HeartbeatPage*> Map(int fd) {
  void* memory = mmap(nullptr, sizeof(HeartbeatPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return Internal("heartbeat: cannot map the shared memory: " + ErrnoText(errno));
  }
  return static_cast<HeartbeatPage*>(memory);
}

int64_t NowNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Result<HeartbeatReader> HeartbeatReader::Create() {
  const int fd = memfd_create("everstep-heartbeat", MFD_CLOEXEC);
  if (fd < 0) return Internal("heartbeat: cannot create shared memory: " + ErrnoText(errno));
  if (ftruncate(fd, sizeof(HeartbeatPage)) != 0) {
    const int error = errno;
    close(fd);
    return Internal("heartbeat: cannot size shared memory: " + ErrnoText(error));
  }
  Result<HeartbeatPage*> page = Map(fd);
  if (!page) {
    close(fd);
    return tl::unexpected(page.error());
  }
  return HeartbeatReader(fd, new (*page) HeartbeatPage);
}

HeartbeatReader::HeartbeatReader(HeartbeatReader&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), page_(std::exchange(other.page_, nullptr)) {}

HeartbeatReader& HeartbeatReader::operator=(HeartbeatReader&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(page_, other.page_);
  return *this;
}

HeartbeatReader::~HeartbeatReader() {
  if (page_ != nullptr) munmap(page_, sizeof(HeartbeatPage));
  if (fd_ >= 0) close(fd_);
}

Beat HeartbeatReader::Read() const {
  Beat beat;
  beat.beats = page_->beats.load(std::memory_order_acquire);
  beat.time = TimePoint(std::chrono::nanoseconds(page_->beat_time_ns.load()));
  for (int i = 0; i < kReadTries; ++i) {
    const uint64_t before = page_->sequence.load();
    beat.generation = page_->generation.load();
    beat.step = page_->step.load();
    char phase[kPhaseBytes + 1] = {};
    for (size_t word = 0; word < HeartbeatPage::kPhaseWords; ++word) {
      const uint64_t value = page_->phase[word].load();
      std::memcpy(phase + word * sizeof(value), &value, sizeof(value));
    }
    beat.phase = phase;
    beat.whole = before % 2 == 0 && page_->sequence.load() == before;
    if (beat.whole) break;
  }
  return beat;
}

void HeartbeatReader::Reset() { new (page_) HeartbeatPage; }

Result<std::unique_ptr<HeartbeatWriter>> HeartbeatWriter::FromEnvironment() {
  const char* text = std::getenv(kHeartbeatFdVariable);
  if (text == nullptr || *text == '\0') return std::unique_ptr<HeartbeatWriter>();
  char* end = nullptr;
  const long fd = std::strtol(text, &end, 10);
  if (*end != '\0' || fd < 0 || fcntl(static_cast<int>(fd), F_GETFD) < 0) {
    return InvalidArgument(std::string(kHeartbeatFdVariable) +
                           ": must name an open descriptor, is '" + text +
                           "'; unset it to run without a supervisor");
  }
  return Open(static_cast<int>(fd));
}

Result<std::unique_ptr<HeartbeatWriter>> HeartbeatWriter::Open(int fd) {
  struct stat info {};
  const bool large_enough =
      fstat(fd, &info) == 0 && info.st_size >= static_cast<off_t>(sizeof(HeartbeatPage));
  Result<HeartbeatPage*> page =
      large_enough ? Map(fd) : InvalidArgument("heartbeat: the shared memory is too small");
  close(fd);
  if (!page) return tl::unexpected(page.error());
  if ((*page)->magic.load() != HeartbeatPage::kMagic) {
    munmap(*page, sizeof(HeartbeatPage));
    return InvalidArgument("heartbeat: the shared memory is not a supervisor's");
  }
  return std::unique_ptr<HeartbeatWriter>(new HeartbeatWriter(*page));
}

HeartbeatWriter::HeartbeatWriter(HeartbeatPage* page) : page_(page) {
  // Signals are for the program's own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { BeatUntilStopped(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

HeartbeatWriter::~HeartbeatWriter() {
  stopped_ = true;
  thread_.join();
  munmap(page_, sizeof(HeartbeatPage));
}

void HeartbeatWriter::BeatUntilStopped() {
  prctl(PR_SET_NAME, "heartbeat");
  timespec pause{};
  pause.tv_nsec = std::chrono::nanoseconds(kBeatInterval).count();
  while (!stopped_.load(std::memory_order_relaxed)) {
    page_->beat_time_ns.store(NowNanoseconds());
    page_->beats.fetch_add(1, std::memory_order_release);
    nanosleep(&pause, nullptr);
  }
}

void HeartbeatWriter::SetProgress(uint64_t generation, int64_t step, std::string_view phase) {
  std::array<uint64_t, HeartbeatPage::kPhaseWords> words{};
  std::memcpy(words.data(), phase.data(), std::min(phase.size(), kPhaseBytes));
  const std::lock_guard lock(progress_mutex_);
  page_->sequence.fetch_add(1);
  page_->generation.store(generation);
  page_->step.store(step);
  for (size_t word = 0; word < words.size(); ++word) page_->phase[word].store(words[word]);
  page_->sequence.fetch_add(1);
}

}  // namespace everstep
