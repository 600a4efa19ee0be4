// A blocking socket that speaks wire frames: the other side of whatever is under test.
// Every wait ends after kPatience, so that a broken program fails a test instead of hanging it.
#ifndef EVERSTEP_TESTS_SUPPORT_FRAME_SOCKET_H_
#define EVERSTEP_TESTS_SUPPORT_FRAME_SOCKET_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/wire.h"

namespace everstep {

inline constexpr int kPatienceSeconds = 30;

class FrameSocket {
 public:
  explicit FrameSocket(int fd = -1) : fd_(fd) {
    const timeval patience{kPatienceSeconds, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  }
  ~FrameSocket() { Close(); }
  FrameSocket(FrameSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), decoder_(std::move(other.decoder_)) {}
  FrameSocket& operator=(FrameSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(decoder_, other.decoder_);
    return *this;
  }

  static FrameSocket Connect(uint16_t port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      close(fd);
      return FrameSocket();
    }
    return FrameSocket(fd);
  }

  bool open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  bool Send(const wire::Message& message) { return SendBytes(wire::EncodeFrame(message)); }
  bool SendBytes(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t size = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(size));
    }
    return true;
  }

  // The next message; kUnavailable when the other side has closed (or is silent for too long).
  Result<wire::Message> Read() {
    while (true) {
      Result<wire::Message> message = decoder_.Next();
      if (message || message.error().code != ErrorCode::kNotFound) return message;
      char bytes[65536];
      const ssize_t size = recv(fd_, bytes, sizeof(bytes), 0);
      if (size <= 0) return Unavailable(size == 0 ? "closed" : "silent");
      decoder_.Append({bytes, static_cast<size_t>(size)});
    }
  }
  // The next message of this kind; others before it are dropped. Empty when there is none.
  template <typename T>
  std::optional<T> Await() {
    // Heartbeats may come for ever.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
    while (std::chrono::steady_clock::now() < deadline) {
      Result<wire::Message> message = Read();
      if (!message) return std::nullopt;
      if (auto* typed = std::get_if<T>(&*message)) return std::move(*typed);
    }
    return std::nullopt;
  }
  // True when the other side closes; whatever it still sends is dropped.
  bool AwaitClosed() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
    while (std::chrono::steady_clock::now() < deadline) {
      Result<wire::Message> message = Read();
      if (!message) return message.error().message == "closed";
    }
    return false;
  }

 private:
  int fd_;
  wire::FrameDecoder decoder_;
};

// A listening socket on a free loopback port.
class FrameListener {
 public:
  explicit FrameListener(uint16_t port = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const timeval patience{kPatienceSeconds, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    socklen_t size = sizeof(address);
    if (bind(fd_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd_, 16) != 0) return;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~FrameListener() { Close(); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  FrameListener(const FrameListener&) = delete;
  FrameListener& operator=(const FrameListener&) = delete;

  uint16_t port() const { return port_; }
  FrameSocket Accept() { return FrameSocket(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)); }

 private:
  int fd_ = -1;
  uint16_t port_ = 0;
};

}  // namespace everstep

#endif  // EVERSTEP_TESTS_SUPPORT_FRAME_SOCKET_H_
