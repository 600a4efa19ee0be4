#include "worker/supervisor/rank_process.h"

#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <utility>

#include "common/log.h"

namespace everstep {
namespace {

namespace asio = boost::asio;

// A process that does not read its control channel gets no more than this.
constexpr size_t kMaxQueuedBytes = 8 << 20;
// Of a text that a process wrote: it is passed on to rendezvous and shown to people.
constexpr size_t kMaxTextBytes = 64 << 10;
// How long the log may stand still before what should go there is dropped.
constexpr int kLogPatienceMs = 20;
// Looks at an exiting process before "no exit code yet" means 0.
constexpr int kExitCodeLooks = 2;
// Set by the operator while the job holds no state yet. It counts for a process's first life only.
constexpr char kFirstStartVariable[] = "EVERSTEP_FIRST_START";

}  // namespace

// The sockets of one life and what is on its way through them.
struct RankProcess::Channels {
  explicit Channels(asio::io_context& io) : control(io), errors(io) {}
  asio::local::stream_protocol::socket control;
  asio::posix::stream_descriptor errors;
  std::array<char, 64 << 10> control_input;
  std::array<char, 16 << 10> errors_input;
  wire::FrameDecoder decoder;
  std::string queued;
  std::string writing;
};

RankProcess::RankProcess(asio::io_context& io, Config config,
                         std::function<void(const wire::Message&)> report)
    : io_(io), config_(std::move(config)), report_(std::move(report)) {}

RankProcess::~RankProcess() {
  // Pending operations find the channels closed and this object not needed.
  if (channels_) {
    boost::system::error_code ignored;
    channels_->control.close(ignored);
    channels_->errors.close(ignored);
  }
}

void RankProcess::Start() {
  restart_when_reaped_ = false;
  uses_control_ = false;
  exiting_seen_ = 0;
  ready_.reset(), regrouped_.reset(), peer_lost_.reset(), finished_.reset(), fatal_.reset();
  generation_ = 0;
  died_ = {}, last_words_ = {};
  tail_.emplace(config_.stderr_prefix);
  channels_ = std::make_shared<Channels>(io_);

  auto heartbeat = HeartbeatReader::Create();
  auto spawned = heartbeat.and_then([&](HeartbeatReader& reader) {
    config_.spawn.heartbeat_fd = reader.fd();
    return Spawn(config_.spawn);
  });
  if (!spawned) {
    LogError(spawned.error().message, {{"rank", config_.rank}});
    state_ = State::kDead;
    died_ = {.rank = config_.rank, .cause = wire::DeathCause::kStartFailed};
    last_words_ = {.rank = config_.rank, .text = spawned.error().message, .exit_code = 127};
    report_(died_);
    report_(last_words_);
    return;
  }
  // A later life finds what this one has written: it must not take it for an older run's.
  config_.spawn.environment.erase(kFirstStartVariable);
  heartbeat_ = std::move(*heartbeat);
  pid_ = spawned->pid;
  state_ = State::kRunning;
  channels_->control.assign(asio::local::stream_protocol(), spawned->control_fd);
  channels_->errors.assign(spawned->stderr_fd);
  report_(wire::ProcessStarted{config_.rank, pid_});
  ReadControl();
  ReadErrors();
}

void RankProcess::Restart() {
  if (state_ == State::kDying) restart_when_reaped_ = true;
  if (state_ == State::kDead || state_ == State::kIdle) Start();
}

void RankProcess::Watch(TimePoint now) {
  if (state_ != State::kRunning) return;
  const Beat beat = heartbeat_->Read();
  if (!IsSuspect(beat, now)) return;
  const Evidence evidence = ReadEvidence(pid_);
  if (Judge(beat, now, evidence) != Verdict::kDead) return;
  // What it said before it died counts: Finished or Fatal explain the death.
  DrainControl();
  if (finished_) return;
  if (evidence.wait_status && WIFSIGNALED(*evidence.wait_status)) {
    return Died(wire::DeathCause::kSignaled, 0, WTERMSIG(*evidence.wait_status), now);
  }
  if (evidence.wait_status && WIFEXITED(*evidence.wait_status)) {
    return Died(wire::DeathCause::kExited, WEXITSTATUS(*evidence.wait_status), 0, now);
  }
  if (evidence.kill_pending) return Died(wire::DeathCause::kSignaled, 0, SIGKILL, now);
  if (evidence.core_dumping) return Died(wire::DeathCause::kSignaled, 0, 0, now);
  if (++exiting_seen_ >= kExitCodeLooks) Died(wire::DeathCause::kExited, 0, 0, now);
}

void RankProcess::Died(wire::DeathCause cause, int exit_code, int signal, TimePoint now) {
  if (state_ != State::kRunning) return;
  state_ = State::kDying;
  const Beat beat = heartbeat_->Read();
  died_ = {.rank = config_.rank,
           .generation = generation_,
           .cause = cause,
           .exit_code = exit_code,
           .signal = signal,
           .detect_seconds = beat.beats > 0 ? Seconds(now - beat.time) : 0};
  report_(died_);
}

void RankProcess::Reaped(int status, TimePoint now) {
  DrainControl();
  DrainErrors();
  kill(-pid_, SIGKILL);  // what it has started must not outlive it
  const int exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  boost::system::error_code ignored;
  channels_->control.close(ignored);
  channels_->errors.close(ignored);
  last_words_ = {
      .rank = config_.rank, .text = tail_->LastWords(), .exit_code = exit_code, .signal = signal};
  const bool success = exit_code == 0 && signal == 0;
  if (success && !uses_control_) {
    // A program that knows nothing of us says by its exit code that it is done.
    finished_ = wire::Finished{.rank = config_.rank, .step = 0, .output_dir = ""};
    report_(*finished_);
  } else if (!finished_ || !success) {
    Died(signal != 0 ? wire::DeathCause::kSignaled : wire::DeathCause::kExited, exit_code, signal,
         now);
  }
  if (success) {
    state_ = State::kFinished;
    return;
  }
  state_ = State::kDead;
  report_(last_words_);
  if (restart_when_reaped_) Start();
}

void RankProcess::Deliver(const wire::Membership& membership) {
  if (state_ != State::kRunning) return;
  for (const wire::Member& member : membership.members) {
    if (member.rank != config_.rank) continue;
    generation_ = std::max(generation_, membership.generation);
    Write(membership);
  }
}

void RankProcess::Deliver(const wire::Stop& stop) {
  if (state_ == State::kRunning && uses_control_) Write(stop);
}

void RankProcess::Signal(int signal) {
  if (state_ == State::kRunning) kill(pid_, signal);
}

void RankProcess::KillGroup() {
  if (alive()) kill(-pid_, SIGKILL);
}

wire::RankBeat RankProcess::beat() const {
  const Beat beat = heartbeat_ ? heartbeat_->Read() : Beat{};
  return {config_.rank, beat.generation, beat.step, beat.phase};
}

std::vector<wire::Message> RankProcess::Snapshot() const {
  std::vector<wire::Message> known;
  if (state_ == State::kIdle) return known;
  if (pid_ > 0) known.push_back(wire::ProcessStarted{config_.rank, pid_});
  if (checkpoint_) known.push_back(*checkpoint_);
  if (state_ == State::kRunning && ready_) {
    wire::Ready ready = *ready_;
    ready.generation = generation_;
    known.push_back(ready);
    if (regrouped_) known.push_back(*regrouped_);
    if (peer_lost_ && peer_lost_->generation >= generation_) known.push_back(*peer_lost_);
  }
  if (finished_) known.push_back(*finished_);
  if (fatal_) known.push_back(*fatal_);
  if (state_ == State::kDying || state_ == State::kDead) known.push_back(died_);
  if (state_ == State::kDead) known.push_back(last_words_);
  return known;
}

void RankProcess::ReadControl() {
  const auto channels = channels_;
  channels->control.async_read_some(asio::buffer(channels->control_input),
                                    [this, channels](auto error, size_t size) {
                                      if (error || !channels->control.is_open()) return;
                                      Decode({channels->control_input.data(), size});
                                      if (channels->control.is_open()) ReadControl();
                                    });
}

void RankProcess::ReadErrors() {
  const auto channels = channels_;
  channels->errors.async_read_some(asio::buffer(channels->errors_input),
                                   [this, channels](auto error, size_t size) {
                                     if (error || !channels->errors.is_open()) return;
                                     PassOn(tail_->Append({channels->errors_input.data(), size}));
                                     ReadErrors();
                                   });
}

void RankProcess::DrainControl() {
  std::array<char, 16 << 10> bytes;
  while (channels_->control.is_open()) {
    const ssize_t size =
        recv(channels_->control.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size <= 0) return;
    Decode({bytes.data(), static_cast<size_t>(size)});
  }
}

void RankProcess::DrainErrors() {
  std::array<char, 16 << 10> bytes;
  // A grandchild may hold the pipe open and write for ever: no more than a pipe holds.
  for (int i = 0; i < 64 && channels_->errors.is_open(); ++i) {
    const ssize_t size = read(channels_->errors.native_handle(), bytes.data(), bytes.size());
    if (size <= 0) break;
    PassOn(tail_->Append({bytes.data(), static_cast<size_t>(size)}));
  }
  PassOn(tail_->Rest());
}

void RankProcess::Decode(std::string_view bytes) {
  channels_->decoder.Append(bytes);
  while (true) {
    Result<wire::Message> message = channels_->decoder.Next();
    if (message) {
      Take(std::move(*message));
      continue;
    }
    if (message.error().code == ErrorCode::kNotFound) return;
    LogWarning("control channel of rank " + std::to_string(config_.rank) + ": " +
               message.error().message);
    boost::system::error_code ignored;
    channels_->control.close(ignored);
    return;
  }
}

// Keeps what a rendezvous has to be told again after a reconnect.
void RankProcess::Take(wire::Message message) {
  uses_control_ = true;
  const auto keep = [&](auto& typed, auto& kept) {
    typed.rank = config_.rank;
    kept = typed;
    report_(typed);
  };
  if (auto* ready = std::get_if<wire::Ready>(&message)) {
    ready->endpoint.resize(std::min(ready->endpoint.size(), kMaxTextBytes));
    keep(*ready, ready_);
  } else if (auto* regrouped = std::get_if<wire::Regrouped>(&message)) {
    keep(*regrouped, regrouped_);
  } else if (auto* lost = std::get_if<wire::PeerLost>(&message)) {
    keep(*lost, peer_lost_);
  } else if (auto* progress = std::get_if<wire::Progress>(&message)) {
    progress->rank = config_.rank;
    report_(*progress);
  } else if (auto* checkpoint = std::get_if<wire::CheckpointSaved>(&message)) {
    checkpoint->path.resize(std::min(checkpoint->path.size(), kMaxTextBytes));
    checkpoint->warning.resize(std::min(checkpoint->warning.size(), kMaxTextBytes));
    keep(*checkpoint, checkpoint_);
  } else if (auto* finished = std::get_if<wire::Finished>(&message)) {
    finished->output_dir.resize(std::min(finished->output_dir.size(), kMaxTextBytes));
    keep(*finished, finished_);
  } else if (auto* fatal = std::get_if<wire::Fatal>(&message)) {
    fatal->reason.resize(std::min(fatal->reason.size(), kMaxTextBytes));
    keep(*fatal, fatal_);
  }
  // Everything else is not a process's to say.
}

void RankProcess::Write(const wire::Message& message) {
  Channels& channels = *channels_;
  if (!channels.control.is_open()) return;
  const std::string frame = wire::EncodeFrame(message);
  if (channels.queued.size() + channels.writing.size() + frame.size() > kMaxQueuedBytes) {
    LogWarning("rank " + std::to_string(config_.rank) + " does not read its control channel");
    return;
  }
  channels.queued += frame;
  if (channels.writing.empty()) WriteNext();
}

void RankProcess::WriteNext() {
  const auto channels = channels_;
  if (channels->queued.empty()) return;
  channels->writing.swap(channels->queued);
  asio::async_write(channels->control, asio::buffer(channels->writing),
                    [this, channels](auto error, size_t) {
                      channels->writing.clear();
                      if (error || !channels->control.is_open()) return;
                      WriteNext();
                    });
}

void RankProcess::PassOn(const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    // A pipe that is writable takes this much without blocking. Nobody reads the log: lines are
    // lost then, rather than this program's heartbeats.
    pollfd log{STDERR_FILENO, POLLOUT, 0};
    if (poll(&log, 1, kLogPatienceMs) <= 0) return;
    const ssize_t size = write(STDERR_FILENO, rest.data(), std::min<size_t>(rest.size(), PIPE_BUF));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    rest.remove_prefix(static_cast<size_t>(size));
  }
}

}  // namespace everstep
