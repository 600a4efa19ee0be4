#include "worker/comm/tcp_socket.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>

#include "common/check.h"

namespace everstep {
namespace {

namespace asio = boost::asio;

// Asked for; the kernel grants at most net.core.wmem_max and rmem_max.
constexpr int kSocketBufferBytes = 4 << 20;
// Backstops for a peer whose machine is gone, and against routers that forget silent connections
// while all members compute; rendezvous normally knows long before.
constexpr unsigned kTcpUserTimeout_ms = 30000;
constexpr int kKeepAliveIdle_seconds = 30;
constexpr int kKeepAliveInterval_seconds = 10;

template <typename T>
void SetOption(int fd, int level, int name, T value) {
  (void)::setsockopt(fd, level, name, &value, sizeof value);
}

int FamilyOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  EVERSTEP_CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return address.ss_family;
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.Release();
  }
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

Result<TcpEndpoint> ParseEndpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) {
    return InvalidArgument("endpoint '" + text + "': has no port; give it as ip:port");
  }
  uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || stop != end || port == 0) {
    return InvalidArgument("endpoint '" + text + "': the port must be a number from 1 to 65535");
  }
  std::string ip = text.substr(0, colon);
  if (ip.size() > 2 && ip.front() == '[' && ip.back() == ']') ip = ip.substr(1, ip.size() - 2);
  boost::system::error_code ec;
  const asio::ip::address address = asio::ip::make_address(ip, ec);
  if (ec) {
    return InvalidArgument("endpoint '" + text + "': '" + ip + "' is no IP address (names are " +
                           "not resolved here)");
  }
  return TcpEndpoint(address, port);
}

std::string FormatEndpoint(const TcpEndpoint& endpoint) {
  const std::string ip = endpoint.address().to_string();
  const std::string host = endpoint.address().is_v6() ? "[" + ip + "]" : ip;
  return host + ":" + std::to_string(endpoint.port());
}

asio::local::stream_protocol::endpoint UnixAddressOf(const TcpEndpoint& endpoint) {
  return {std::string(1, '\0') + "everstep-comm/" + FormatEndpoint(endpoint)};
}

Result<UniqueFd> ConnectUnix(const TcpEndpoint& endpoint) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Unavailable("no socket: " + ErrnoText(errno));
  const auto address = UnixAddressOf(endpoint);
  if (::connect(fd.get(), address.data(), static_cast<socklen_t>(address.size())) != 0) {
    if (errno == EAGAIN) return Unavailable("the listener's queue is full");
    return NotFound("not on this machine");
  }
  if (!PeerIsSameUser(fd.get())) return NotFound("the listener is another user's");
  return fd;
}

bool PeerIsSameUser(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

void TuneSocket(int fd) {
  (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
  if (FamilyOf(fd) == AF_UNIX) {
    SetOption(fd, SOL_SOCKET, SO_SNDBUF, kSocketBufferBytes);
    return;
  }
  // The kernel sizes TCP's buffers itself, and better than a fixed size below its own limit.
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kTcpUserTimeout_ms);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdle_seconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveInterval_seconds);
}

bool SendFrameNow(int fd, const CommFrame& frame) {
  const FrameBytes bytes = EncodeCommFrame(frame);
  const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(bytes.size());
}

void AdoptSocket(StreamSocket& socket, UniqueFd fd) {
  const int family = FamilyOf(fd.get());
  socket.assign(asio::generic::stream_protocol(family, family == AF_UNIX ? 0 : IPPROTO_TCP),
                fd.Release());
}

}  // namespace everstep
