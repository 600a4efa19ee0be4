// One supervisor's connection: frames in, frames out, both bounded. Not thread-safe: everything
// happens on the io_context's one thread.
#ifndef EVERSTEP_OPERATOR_RENDEZVOUS_CONNECTION_H_
#define EVERSTEP_OPERATOR_RENDEZVOUS_CONNECTION_H_

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/wire.h"

namespace everstep {

// Shared by its own pending operations and by the server that keeps it.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // The one place that names the transport.
  using Stream = boost::asio::ip::tcp::socket;

  struct Handlers {
    std::function<void(wire::Message)> on_message;
    std::function<void(const std::string& reason)> on_closed;  // once, at most
  };

  Connection(Stream stream, size_t max_queued_bytes);
  void Start(Handlers handlers);

  // Queues a frame. A peer that does not read loses its connection when the queue is full.
  void Send(const wire::Message& message);
  // Sends what is queued, for a second at most, then closes. Reads nothing more; on_closed is not
  // called.
  void CloseWhenSent();
  // At once; on_closed is not called.
  void Abort();

 private:
  void Read();
  void Decode(size_t size);
  void Write();
  void Fail(const std::string& reason);

  Stream stream_;
  boost::asio::steady_timer drain_timer_;
  const size_t max_queued_bytes_;
  Handlers handlers_;
  wire::FrameDecoder decoder_;
  std::array<char, 64 << 10> input_;
  std::string queued_;
  std::string writing_;
  enum class State { kOpen, kDraining, kClosed } state_ = State::kOpen;
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_RENDEZVOUS_CONNECTION_H_
