// A process's end of the control channel: a socket pair to its supervisor that carries wire
// frames. Up: Ready, Regrouped, PeerLost, Progress, CheckpointSaved, Finished, Fatal.
// Down: Membership, Stop.
#ifndef EVERSTEP_WORKER_RECOVERY_CONTROL_H_
#define EVERSTEP_WORKER_RECOVERY_CONTROL_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/clock.h"
#include "common/result.h"
#include "common/wire.h"

namespace everstep {

inline constexpr char kControlFdVariable[] = "EVERSTEP_CONTROL_FD";

// Thread-safe.
class ControlChannel {
 public:
  // Called from the channel's own thread, one at a time, in the order of arrival. They must not
  // destroy the channel.
  struct Handlers {
    std::function<void(wire::Message)> on_message;
    // The supervisor is gone or the stream is broken. Called once, at most.
    std::function<void(Error)> on_closed;
  };

  // Over the socket that EVERSTEP_CONTROL_FD names; null when it is not set (no supervisor).
  static Result<std::unique_ptr<ControlChannel>> FromEnvironment(Handlers handlers);
  // Takes ownership of `fd`, a connected stream socket.
  static Result<std::unique_ptr<ControlChannel>> Open(int fd, Handlers handlers);
  // Sends what is queued (for one second at most), then closes.
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // Queues `message` and returns at once. kResourceExhausted when the supervisor has not read for
  // so long that kMaxQueuedBytes wait; kUnavailable when it is gone.
  Status Send(const wire::Message& message);
  // Blocks until everything queued is handed to the kernel. kDeadlineExceeded or kUnavailable
  // when that cannot be done.
  Status Flush(Duration timeout);

  static constexpr size_t kMaxQueuedBytes = 8 << 20;

 private:
  ControlChannel(int fd, int wake_fd, Handlers handlers);
  void Run();
  bool ReadAvailable();
  void WriteQueuedLocked();
  void Close(const Error& error);
  void Wake();

  const int fd_;
  const int wake_fd_;  // eventfd: something to write, or time to end
  const Handlers handlers_;
  wire::FrameDecoder decoder_;

  std::mutex mutex_;
  std::condition_variable drained_;
  std::string queue_;
  bool ending_ = false;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_RECOVERY_CONTROL_H_
