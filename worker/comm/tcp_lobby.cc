#include "worker/comm/tcp_lobby.h"

#include <fcntl.h>

#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>

#include "common/log.h"
#include "worker/comm/tcp_fabric.h"

namespace everstep {

namespace asio = boost::asio;
using boost::system::error_code;

// A connection that has not said hello yet. Owned by its pending operations.
struct TcpLobby::Handshake {
  Handshake(TcpLobby& lobby, StreamSocket connection)
      : lobby(lobby), socket(std::move(connection)), timer(lobby.io_) {
    ++lobby.handshakes_;
  }
  ~Handshake() { --lobby.handshakes_; }

  TcpLobby& lobby;
  StreamSocket socket;
  asio::steady_timer timer;
  FrameBytes hello{};
};

Result<std::unique_ptr<TcpLobby>> TcpLobby::Open(const TcpFabricOptions& options) {
  std::unique_ptr<TcpLobby> lobby(new TcpLobby(options));
  RETURN_IF_ERROR(lobby->Listen(options));
  lobby->Accept(lobby->tcp_acceptor_);
  if (lobby->unix_acceptor_.is_open()) lobby->Accept(lobby->unix_acceptor_);
  lobby->SweepLater();
  lobby->thread_ = std::thread([raw = lobby.get()] { raw->io_.run(); });
  return lobby;
}

TcpLobby::TcpLobby(const TcpFabricOptions& options) : job_(JobHash(options.job, options.token)) {}

TcpLobby::~TcpLobby() {
  io_.stop();
  if (thread_.joinable()) thread_.join();
}

Status TcpLobby::Listen(const TcpFabricOptions& options) {
  error_code ec;
  const auto address = asio::ip::make_address(options.bind_ip, ec);
  if (ec) return InvalidArgument("EVERSTEP_POD_IP '" + options.bind_ip + "' is no IP address");
  const TcpEndpoint wanted(address, options.port);
  tcp_acceptor_.open(wanted.protocol(), ec);
  if (!ec) tcp_acceptor_.set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec) tcp_acceptor_.bind(wanted, ec);
  if (!ec) tcp_acceptor_.listen(asio::socket_base::max_listen_connections, ec);
  if (!ec) endpoint_ = tcp_acceptor_.local_endpoint(ec);
  if (ec == asio::error::address_in_use) {
    return Unavailable("cannot listen on " + FormatEndpoint(wanted) + ": the port is in use; " +
                       "give another one, or 0 for any");
  }
  if (ec) {
    return InvalidArgument("cannot listen on " + FormatEndpoint(wanted) + ": " + ec.message() +
                           "; EVERSTEP_POD_IP must be an address of this machine");
  }
  (void)::fcntl(tcp_acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  if (!options.use_unix_sockets) return {};
  unix_acceptor_.open(asio::local::stream_protocol(), ec);
  if (!ec) unix_acceptor_.bind(UnixAddressOf(endpoint_), ec);
  if (!ec) unix_acceptor_.listen(asio::socket_base::max_listen_connections, ec);
  if (ec) {  // peers on this machine fall back to TCP
    LogWarning("no Unix-domain listener", {{"reason", ec.message()}});
    unix_acceptor_.close(ec);
    return {};
  }
  (void)::fcntl(unix_acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  return {};
}

template <typename Acceptor>
void TcpLobby::Accept(Acceptor& acceptor) {
  auto socket = std::make_shared<StreamSocket>(io_);
  acceptor.async_accept(*socket, [this, &acceptor, socket](error_code ec) {
    if (ec == asio::error::operation_aborted) return;
    if (ec) {  // out of descriptors, most likely: leave the peer in the queue for a moment
      LogWarning("cannot accept a peer's connection", {{"reason", ec.message()}});
      accept_retry_.expires_after(kAcceptRetry);
      accept_retry_.async_wait([this, &acceptor](error_code) { Accept(acceptor); });
      return;
    }
    StartHandshake(std::move(*socket));
    Accept(acceptor);
  });
}

void TcpLobby::StartHandshake(StreamSocket socket) {
  if (handshakes_ >= kMaxHandshakes) return;  // closes it; an honest peer tries again
  TuneSocket(socket.native_handle());
  auto handshake = std::make_shared<Handshake>(*this, std::move(socket));
  handshake->timer.expires_after(kHelloTimeout);
  handshake->timer.async_wait([weak = std::weak_ptr(handshake)](error_code ec) {
    const auto late = weak.lock();
    error_code ignored;
    if (!ec && late) late->socket.close(ignored);
  });
  asio::async_read(handshake->socket, asio::buffer(handshake->hello),
                   [this, handshake](error_code ec, size_t) {
                     if (!ec) OnHello(*handshake);
                   });
}

void TcpLobby::OnHello(Handshake& handshake) {
  const auto hello = DecodeCommFrame(handshake.hello);
  if (!hello) {
    LogDebug("connection dropped", {{"reason", hello.error().message}});
    return;
  }
  Guest guest{.hello = *hello, .socket = ReleaseSocket(handshake.socket)};
  const bool is_hello =
      hello->kind == FrameKind::kHelloData || hello->kind == FrameKind::kHelloControl;
  const std::lock_guard lock(mutex_);
  if (hello->job != job_ || !is_hello) return Refuse(guest, Refusal::kOtherJob);
  if (hello->generation > newest_seen_.load()) newest_seen_.store(hello->generation);
  Admit(std::move(guest));
}

void TcpLobby::Admit(Guest guest) {
  const CommFrame& hello = guest.hello;
  if (hello.generation < fence_) return Refuse(guest, Refusal::kOlderGeneration);
  if (hello.generation == fence_) {
    if (!receiver_) return Refuse(guest, Refusal::kNotExpected);
    return receiver_(std::move(guest));
  }
  // A peer that dials again replaces its earlier attempt.
  const ParkKey key{hello.generation, hello.sender, hello.kind};
  if (parked_.size() >= kMaxParked && !parked_.contains(key)) {
    return Refuse(guest, Refusal::kNotExpected);
  }
  parked_[key] = Parked{.guest = std::move(guest), .since = std::chrono::steady_clock::now()};
}

void TcpLobby::Refuse(const Guest& guest, Refusal reason) const {
  LogDebug("connection refused", {{"reason", RefusalText(reason)},
                                  {"rank", guest.hello.sender},
                                  {"generation", guest.hello.generation},
                                  {"newest", fence_}});
  (void)SendFrameNow(guest.socket.get(), {.kind = FrameKind::kRefused,
                                          .job = guest.hello.job,
                                          .generation = fence_,
                                          .argument = static_cast<int32_t>(reason)});
}

Status TcpLobby::Expect(uint64_t generation, Receiver receiver) {
  const std::lock_guard lock(mutex_);
  if (generation <= fence_) {
    return MakeError(ErrorCode::kFailedPrecondition,
                     "generation " + std::to_string(generation) + " is not newer than " +
                         std::to_string(fence_) + ", which was connected here before");
  }
  fence_ = generation;
  receiver_ = std::move(receiver);
  // Moved out first: admitting puts those of still newer generations back.
  auto waiting = std::exchange(parked_, {});
  for (auto& [key, parked] : waiting) Admit(std::move(parked.guest));
  return {};
}

void TcpLobby::StopExpecting() {
  const std::lock_guard lock(mutex_);
  receiver_ = nullptr;
}

void TcpLobby::SweepLater() {
  sweep_.expires_after(std::chrono::seconds(1));
  sweep_.async_wait([this](error_code ec) {
    if (ec) return;
    {
      const std::lock_guard lock(mutex_);
      const TimePoint oldest = std::chrono::steady_clock::now() - kParkTimeout;
      std::erase_if(parked_, [&](const auto& entry) { return entry.second.since < oldest; });
    }
    SweepLater();
  });
}

}  // namespace everstep
