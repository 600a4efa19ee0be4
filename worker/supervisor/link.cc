#include "worker/supervisor/link.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/write.hpp>
#include <cmath>
#include <utility>

#include "common/log.h"

namespace everstep {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// A rendezvous that answers nothing for this long is gone, though no reset has come.
constexpr unsigned kUserTimeoutMs = 5000;

}  // namespace

struct RendezvousLink::Connection {
  explicit Connection(asio::io_context& io) : socket(io), deadline(io) {}
  tcp::socket socket;
  asio::steady_timer deadline;
  std::array<char, 64 << 10> input;
  wire::FrameDecoder decoder;
  std::string queued;
  std::string writing;
  bool over = false;
};

RendezvousLink::RendezvousLink(asio::io_context& io, Config config, Handlers handlers)
    : io_(io),
      config_(std::move(config)),
      handlers_(std::move(handlers)),
      resolver_(io),
      retry_timer_(io),
      beat_timer_(io),
      flush_timer_(io) {}

RendezvousLink::~RendezvousLink() {
  if (connection_) connection_->over = true;
}

void RendezvousLink::Connect() {
  const auto connection = std::make_shared<Connection>(io_);
  connection_ = connection;
  connection->deadline.expires_after(kConnectTimeout);
  connection->deadline.async_wait([this, connection](auto cancelled) {
    if (!cancelled && !connection->over) Broken("no answer");
  });
  resolver_.async_resolve(
      config_.host, config_.port, [this, connection](auto error, const auto& endpoints) {
        if (connection->over) return;
        if (error) return Broken(error.message());
        asio::async_connect(connection->socket, endpoints,
                            [this, connection](auto failed, const tcp::endpoint&) {
                              if (connection->over) return;
                              if (failed) return Broken(failed.message());
                              OnConnected();
                            });
      });
}

void RendezvousLink::OnConnected() {
  connection_->deadline.cancel();
  boost::system::error_code ignored;
  connection_->socket.set_option(tcp::no_delay(true), ignored);
  setsockopt(connection_->socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs,
             sizeof(kUserTimeoutMs));
  up_ = true;
  Send(config_.hello);
  for (const wire::Message& message : handlers_.snapshot()) Send(message);
  Read();
  Beat();
}

void RendezvousLink::Read() {
  const auto connection = connection_;
  connection->socket.async_read_some(
      asio::buffer(connection->input), [this, connection](auto error, size_t size) {
        if (connection->over) return;
        if (error) return Broken(error.message());
        connection->decoder.Append({connection->input.data(), size});
        while (!connection->over) {
          Result<wire::Message> message = connection->decoder.Next();
          if (!message && message.error().code == ErrorCode::kNotFound) return Read();
          if (!message) return Broken(message.error().message);
          if (const auto* welcome = std::get_if<wire::Welcome>(&*message)) {
            retry_ = kFirstRetry;
            if (std::exchange(told_down_, false)) LogInfo("connected to rendezvous again");
            const double timeout = std::clamp(welcome->heartbeat_timeout_seconds, 0.02, 3600.0);
            beat_interval_ = std::chrono::duration_cast<Duration>(
                std::chrono::duration<double>(timeout / kBeatsPerTimeout));
            Beat();
          }
          handlers_.on_message(*message);
        }
      });
}

void RendezvousLink::Send(const wire::Message& message) {
  if (!up_) return;
  connection_->queued += wire::EncodeFrame(message);
  if (connection_->queued.size() > kMaxQueuedBytes) return Broken("it does not read");
  if (connection_->writing.empty()) Write();
}

void RendezvousLink::Write() {
  const auto connection = connection_;
  if (connection->queued.empty()) return FlushDone();
  connection->writing.swap(connection->queued);
  asio::async_write(connection->socket, asio::buffer(connection->writing),
                    [this, connection](auto error, size_t) {
                      connection->writing.clear();
                      if (connection->over) return;
                      if (error) return Broken(error.message());
                      Write();
                    });
}

void RendezvousLink::Beat() {
  if (!up_) return;
  Send(handlers_.heartbeat());
  beat_timer_.expires_after(beat_interval_);
  beat_timer_.async_wait([this](auto cancelled) {
    if (!cancelled) Beat();
  });
}

void RendezvousLink::Broken(const std::string& why) {
  boost::system::error_code ignored;
  connection_->over = true;
  connection_->deadline.cancel();
  connection_->socket.close(ignored);
  up_ = false;
  beat_timer_.cancel();
  if (!std::exchange(told_down_, true)) {
    LogWarning("rendezvous " + config_.host + ":" + config_.port + " is away (" + why +
               "); training goes on, trying again");
  }
  retry_timer_.expires_after(retry_);
  retry_ = std::min<Duration>(retry_ * 2, kLastRetry);
  retry_timer_.async_wait([this](auto cancelled) {
    if (!cancelled) Connect();
  });
}

void RendezvousLink::Flush(Duration timeout, std::function<void()> done) {
  flush_done_ = std::move(done);
  if (up_ && connection_->writing.empty() && connection_->queued.empty()) return FlushDone();
  flush_timer_.expires_after(timeout);
  flush_timer_.async_wait([this](auto cancelled) {
    if (!cancelled) FlushDone();
  });
}

void RendezvousLink::FlushDone() {
  if (const auto done = std::exchange(flush_done_, nullptr)) done();
}

}  // namespace everstep
