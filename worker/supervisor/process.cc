#include "worker/supervisor/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "worker/recovery/control.h"
#include "worker/recovery/heartbeat.h"

namespace everstep {
namespace {

// Closes what was opened when something goes wrong half-way.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { Reset(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

struct Pipes {
  Fd control, control_child, errors, errors_child, failure, failure_child;
};

Status Open(Pipes& pipes) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Unavailable("cannot create a socket pair: " + ErrnoText(errno));
  }
  pipes.control.Reset(ends[0]);
  pipes.control_child.Reset(ends[1]);
  if (pipe2(ends, O_CLOEXEC) != 0) return Unavailable("cannot create a pipe: " + ErrnoText(errno));
  pipes.errors.Reset(ends[0]);
  pipes.errors_child.Reset(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  if (pipe2(ends, O_CLOEXEC) != 0) return Unavailable("cannot create a pipe: " + ErrnoText(errno));
  pipes.failure.Reset(ends[0]);
  pipes.failure_child.Reset(ends[1]);
  return {};
}

// What the child needs, prepared before the fork: nothing is allocated after it.
struct Prepared {
  std::vector<std::string> texts;
  std::vector<char*> argv, envp;
};

Prepared Prepare(const SpawnRequest& request, int control_fd) {
  Prepared prepared;
  Environment environment = request.environment;
  environment[kControlFdVariable] = std::to_string(control_fd);
  environment[kHeartbeatFdVariable] = std::to_string(request.heartbeat_fd);
  for (const auto& [name, value] : environment) prepared.texts.push_back(name + "=" + value);
  for (std::string& text : prepared.texts) prepared.envp.push_back(text.data());
  for (const std::string& text : request.command) {
    prepared.argv.push_back(const_cast<char*>(text.c_str()));
  }
  prepared.envp.push_back(nullptr);
  prepared.argv.push_back(nullptr);
  return prepared;
}

// In the child, with all signals blocked. Async-signal-safe calls only.
[[noreturn]] void Become(const Prepared& prepared, const Pipes& pipes, int heartbeat_fd,
                         pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  setpgid(0, 0);
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal != SIGKILL && signal != SIGSTOP) ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  fcntl(pipes.control_child.get(), F_SETFD, 0);
  if (heartbeat_fd >= 0) fcntl(heartbeat_fd, F_SETFD, 0);
  dup2(pipes.errors_child.get(), STDERR_FILENO);
  execvpe(prepared.argv[0], prepared.argv.data(), prepared.envp.data());
  const int error = errno;
  (void)!write(pipes.failure_child.get(), &error, sizeof(error));
  _exit(127);
}

}  // namespace

Result<SpawnedProcess> Spawn(const SpawnRequest& request) {
  Pipes pipes;
  RETURN_IF_ERROR(Open(pipes));
  const Prepared prepared = Prepare(request, pipes.control_child.get());
  const pid_t parent = getpid();
  // A signal between fork and exec would run this program's handlers in the child.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) Become(prepared, pipes, request.heartbeat_fd, parent);
  const int fork_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return Unavailable("cannot start a process: " + ErrnoText(fork_error));
  setpgid(pid, pid);  // by both: whoever comes first
  pipes.failure_child.Reset();
  int error = 0;
  if (read(pipes.failure.get(), &error, sizeof(error)) == sizeof(error)) {
    waitpid(pid, nullptr, 0);
    return InvalidArgument(request.command[0] + ": cannot be started: " + ErrnoText(error) +
                           "; check the command and the image");
  }
  return SpawnedProcess{pid, pipes.control.Release(), pipes.errors.Release()};
}

}  // namespace everstep
