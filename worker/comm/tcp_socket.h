// Sockets of the mesh: addresses, options, and the few calls that Asio has no name for.
#ifndef EVERSTEP_WORKER_COMM_TCP_SOCKET_H_
#define EVERSTEP_WORKER_COMM_TCP_SOCKET_H_

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <string>
#include <utility>

#include "common/result.h"
#include "worker/comm/frame.h"

namespace everstep {

// TCP or Unix-domain, alike once connected.
using StreamSocket = boost::asio::generic::stream_protocol::socket;
using TcpEndpoint = boost::asio::ip::tcp::endpoint;

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// "10.0.0.1:4000" or "[fd00::1]:4000". kInvalidArgument says what is wrong with it.
Result<TcpEndpoint> ParseEndpoint(const std::string& text);
std::string FormatEndpoint(const TcpEndpoint& endpoint);

// The abstract Unix address beside a TCP listener. Its name is the TCP address itself, which
// has one owner per network namespace, as abstract names do: who can connect to it is on the same
// machine as the listener that is meant.
boost::asio::local::stream_protocol::endpoint UnixAddressOf(const TcpEndpoint& endpoint);

// A connected Unix-domain socket to the listener at `endpoint`. kNotFound when it is not on this
// machine (or of another user); kUnavailable when it is busy: try again.
Result<UniqueFd> ConnectUnix(const TcpEndpoint& endpoint);

// The process at the other end of this Unix-domain socket runs as the same user.
bool PeerIsSameUser(int fd);

// No delay, large buffers, not inherited by child processes. Best effort: for speed only.
void TuneSocket(int fd);

// Sends one frame without waiting; false when it did not fit or the connection is broken. For
// connections that carry few frames (hello, farewell), whose buffers are never full.
bool SendFrameNow(int fd, const CommFrame& frame);

// Takes the descriptor out of an Asio socket that has no operation in progress.
template <typename Socket>
UniqueFd ReleaseSocket(Socket& socket) {
  boost::system::error_code ignored;
  return UniqueFd(socket.release(ignored));
}

// Hands a descriptor of either family to `socket`.
void AdoptSocket(StreamSocket& socket, UniqueFd fd);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_COMM_TCP_SOCKET_H_
