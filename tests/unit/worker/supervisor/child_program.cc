// The program that the supervisor's tests run under it: child_program MODE.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>

#include "worker/recovery/control.h"
#include "worker/recovery/heartbeat.h"

namespace everstep {
namespace {

constexpr int kStopped = 130;

class Child {
 public:
  explicit Child(std::string_view mode) : mode_(mode) {}

  int Run() {
    std::unique_lock setup(mutex_);  // messages wait until everything is there
    auto heartbeat = HeartbeatWriter::FromEnvironment();
    auto control = ControlChannel::FromEnvironment(
        {.on_message = [this](const wire::Message& message) { OnMessage(message); },
         .on_closed = [](const Error&) { _exit(1); }});
    if (!heartbeat || !control || !*heartbeat || !*control) return 1;
    heartbeat_ = heartbeat->get();
    control_ = control->get();
    setup.unlock();
    std::string endpoint = std::to_string(getpid());
    if (mode_ == "orphan") endpoint = std::to_string(LeaveOrphan());
    (void)control_->Send(wire::Ready{.rank = -1, .endpoint = endpoint});
    while (true) pause();
  }

 private:
  // A grandchild that has lost its parent and ends when it is asked to.
  static pid_t LeaveOrphan() {
    int ends[2];
    if (pipe(ends) != 0) return -1;
    const pid_t middle = fork();
    if (middle == 0) {
      const pid_t orphan = fork();
      if (orphan == 0) {
        pause();
        _exit(0);
      }
      (void)!write(ends[1], &orphan, sizeof(orphan));
      _exit(0);
    }
    pid_t orphan = -1;
    (void)!read(ends[0], &orphan, sizeof(orphan));
    waitpid(middle, nullptr, 0);
    return orphan;
  }

  void OnMessage(const wire::Message& message) {
    const std::lock_guard lock(mutex_);
    if (const auto* membership = std::get_if<wire::Membership>(&message)) {
      heartbeat_->SetProgress(membership->generation, 5, "compute");
      (void)control_->Send(wire::Regrouped{-1, membership->generation, 5});
      if (mode_ == "finish") End(wire::Finished{-1, 10, "out"}, 0);
      if (mode_ == "fatal") End(wire::Fatal{-1, "loss is NaN"}, 3);
      if (mode_ == "leave") _exit(0);
      if (mode_ == "crash") std::abort();
    } else if (std::holds_alternative<wire::Stop>(message) && mode_ != "stubborn") {
      End(
          wire::CheckpointSaved{
              .rank = -1, .generation = 1, .step = 5, .path = "last", .warning = ""},
          kStopped);
    }
  }

  void End(const wire::Message& last, int code) {
    (void)control_->Send(last);
    (void)control_->Flush(std::chrono::seconds(5));
    _exit(code);
  }

  const std::string_view mode_;
  std::mutex mutex_;
  HeartbeatWriter* heartbeat_ = nullptr;
  ControlChannel* control_ = nullptr;
};

}  // namespace
}  // namespace everstep

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "train";
  // Stop comes by the control channel; SIGTERM, which follows it, must not end the saving.
  std::signal(SIGTERM, SIG_IGN);
  return everstep::Child(mode).Run();
}
