// One rank's training process through its lives: started, watched, dead, started again.
//
// Not thread-safe: everything happens on the io_context's one thread.
#ifndef EVERSTEP_WORKER_SUPERVISOR_RANK_PROCESS_H_
#define EVERSTEP_WORKER_SUPERVISOR_RANK_PROCESS_H_

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/wire.h"
#include "worker/recovery/heartbeat.h"
#include "worker/supervisor/detector.h"
#include "worker/supervisor/process.h"
#include "worker/supervisor/stderr_tail.h"

namespace everstep {

class RankProcess {
 public:
  enum class State {
    kIdle,  // never started
    kRunning,
    kDying,     // known to be dead, and told so; the kernel has not freed it yet
    kDead,      // reaped after an error
    kFinished,  // exited with 0, its work done
  };

  struct Config {
    int rank = 0;
    SpawnRequest spawn;         // heartbeat_fd is filled in
    std::string stderr_prefix;  // "" or "[rank 2] "
  };
  // `report` gets every message about this rank, with the rank filled in.
  RankProcess(boost::asio::io_context& io, Config config,
              std::function<void(const wire::Message&)> report);
  ~RankProcess();

  // Starts the process; a failure is reported as its death.
  void Start();
  // Starts it again, as soon as the dead one is reaped. Nothing while it runs.
  void Restart();
  // An order to restart that waits for the dead one to be reaped is void.
  void ForgetRestart() { restart_when_reaped_ = false; }

  // The fast path: looks at the heartbeat and, when it is silent, at what the kernel says.
  void Watch(TimePoint now);
  // waitpid has returned `status` for pid().
  void Reaped(int status, TimePoint now);

  // To the process, when it takes part (is a member; reads its control channel).
  void Deliver(const wire::Membership& membership);
  void Deliver(const wire::Stop& stop);
  void Signal(int signal);
  // SIGKILL to the process and everything it has started.
  void KillGroup();

  State state() const { return state_; }
  bool alive() const { return state_ == State::kRunning || state_ == State::kDying; }
  pid_t pid() const { return pid_; }
  const std::optional<wire::Fatal>& fatal() const { return fatal_; }
  int exit_code() const { return last_words_.exit_code; }  // of the last death
  wire::RankBeat beat() const;
  // What a rendezvous must know of this rank that has not heard of it, in order.
  std::vector<wire::Message> Snapshot() const;

 private:
  void ReadControl();
  void ReadErrors();
  // Whatever is readable now. The process is dead: nothing more will come.
  void DrainControl();
  void DrainErrors();
  void Decode(std::string_view bytes);
  void Take(wire::Message message);
  void Write(const wire::Message& message);
  void WriteNext();
  void Died(wire::DeathCause cause, int exit_code, int signal, TimePoint now);
  void PassOn(const std::string& text);

  boost::asio::io_context& io_;
  Config config_;
  const std::function<void(const wire::Message&)> report_;
  std::optional<HeartbeatReader> heartbeat_;
  State state_ = State::kIdle;
  bool restart_when_reaped_ = false;
  pid_t pid_ = -1;

  // Of the current life.
  struct Channels;
  std::shared_ptr<Channels> channels_;  // shared with its pending operations
  std::optional<StderrTail> tail_;
  bool uses_control_ = false;
  int exiting_seen_ = 0;
  std::optional<wire::Ready> ready_;
  std::optional<wire::Regrouped> regrouped_;
  std::optional<wire::PeerLost> peer_lost_;
  std::optional<wire::Finished> finished_;
  std::optional<wire::Fatal> fatal_;
  uint64_t generation_ = 0;  // newest one that it was told of
  wire::ProcessDied died_;
  wire::LastWords last_words_;
  // Of any life.
  std::optional<wire::CheckpointSaved> checkpoint_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_SUPERVISOR_RANK_PROCESS_H_
