#include "worker/recovery/control.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

namespace everstep {
namespace {

constexpr std::chrono::seconds kFlushAtEnd{1};
constexpr size_t kReadBytes = 64 << 10;

const char kGone[] = "control channel: the supervisor is gone";

}  // namespace

Result<std::unique_ptr<ControlChannel>> ControlChannel::FromEnvironment(Handlers handlers) {
  const char* text = std::getenv(kControlFdVariable);
  if (text == nullptr || *text == '\0') return std::unique_ptr<ControlChannel>();
  char* end = nullptr;
  const long fd = std::strtol(text, &end, 10);
  if (*end != '\0' || fd < 0 || fcntl(static_cast<int>(fd), F_GETFD) < 0) {
    return InvalidArgument(std::string(kControlFdVariable) +
                           ": must name an open descriptor, is '" + text +
                           "'; unset it to run without a supervisor");
  }
  return Open(static_cast<int>(fd), std::move(handlers));
}

Result<std::unique_ptr<ControlChannel>> ControlChannel::Open(int fd, Handlers handlers) {
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) {
    const int error = errno;
    close(fd);
    return Internal("control channel: cannot create an eventfd: " + ErrnoText(error));
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);  // programs that this one starts have no business with it
  return std::unique_ptr<ControlChannel>(new ControlChannel(fd, wake_fd, std::move(handlers)));
}

ControlChannel::ControlChannel(int fd, int wake_fd, Handlers handlers)
    : fd_(fd), wake_fd_(wake_fd), handlers_(std::move(handlers)) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ControlChannel::~ControlChannel() {
  (void)Flush(kFlushAtEnd);
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  Wake();
  thread_.join();
  close(fd_);
  close(wake_fd_);
}

Status ControlChannel::Send(const wire::Message& message) {
  const std::string frame = wire::EncodeFrame(message);
  const std::lock_guard lock(mutex_);
  if (closed_) return Unavailable(kGone);
  if (queue_.size() + frame.size() > kMaxQueuedBytes) {
    return MakeError(ErrorCode::kResourceExhausted,
                     "control channel: the supervisor does not read; " +
                         std::to_string(queue_.size()) + " bytes wait");
  }
  queue_ += frame;
  WriteQueuedLocked();
  if (!queue_.empty()) Wake();
  return {};
}

Status ControlChannel::Flush(Duration timeout) {
  std::unique_lock lock(mutex_);
  const bool done = drained_.wait_for(lock, timeout, [this] { return queue_.empty() || closed_; });
  if (queue_.empty()) return {};
  if (!done) {
    return MakeError(ErrorCode::kDeadlineExceeded, "control channel: the supervisor does not read");
  }
  return Unavailable(kGone);
}

void ControlChannel::Run() {
  prctl(PR_SET_NAME, "control");
  while (true) {
    bool want_write = false;
    {
      const std::lock_guard lock(mutex_);
      if (ending_ || closed_) return;
      want_write = !queue_.empty();
    }
    pollfd fds[2] = {{fd_, static_cast<short>(want_write ? POLLIN | POLLOUT : POLLIN), 0},
                     {wake_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) {
      return Close({ErrorCode::kInternal, "control channel: poll: " + ErrnoText(errno)});
    }
    if (fds[1].revents != 0) {
      uint64_t count = 0;
      (void)!read(wake_fd_, &count, sizeof(count));
    }
    if ((fds[0].revents & POLLOUT) != 0) {
      const std::lock_guard lock(mutex_);
      WriteQueuedLocked();
    }
    if ((fds[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !ReadAvailable()) return;
  }
}

bool ControlChannel::ReadAvailable() {
  char bytes[kReadBytes];
  const ssize_t size = recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (size <= 0) {
    Close({ErrorCode::kUnavailable, kGone});
    return false;
  }
  decoder_.Append({bytes, static_cast<size_t>(size)});
  while (true) {
    Result<wire::Message> message = decoder_.Next();
    if (!message && message.error().code == ErrorCode::kNotFound) return true;
    if (!message) {
      Close({ErrorCode::kDataLoss, "control channel: " + message.error().message});
      return false;
    }
    if (handlers_.on_message) handlers_.on_message(std::move(*message));
  }
}

void ControlChannel::WriteQueuedLocked() {
  while (!queue_.empty() && !closed_) {
    const ssize_t size = send(fd_, queue_.data(), queue_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    // Every other error shows up in the reading thread too, which tells the owner.
    if (size < 0) return;
    queue_.erase(0, static_cast<size_t>(size));
  }
  if (queue_.empty()) drained_.notify_all();
}

void ControlChannel::Close(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    drained_.notify_all();
  }
  if (handlers_.on_closed) handlers_.on_closed(error);
}

void ControlChannel::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof(one));
}

}  // namespace everstep
