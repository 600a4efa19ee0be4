// The open connection to rendezvous: heartbeats, reconnects with backoff, bounded buffers.
//
// Losing it never stops training. After each connect it says Hello and then everything that
// rendezvous has to know (a snapshot that the owner gives), so nothing is kept for later here.
// Not thread-safe: everything happens on the io_context's one thread.
#ifndef EVERSTEP_WORKER_SUPERVISOR_LINK_H_
#define EVERSTEP_WORKER_SUPERVISOR_LINK_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/wire.h"

namespace everstep {

class RendezvousLink {
 public:
  struct Config {
    std::string host;
    std::string port;
    wire::Hello hello;
  };
  struct Handlers {
    std::function<void(const wire::Message&)> on_message;
    std::function<std::vector<wire::Message>()> snapshot;
    std::function<wire::Heartbeat()> heartbeat;
  };

  static constexpr std::chrono::milliseconds kFirstRetry{20};
  static constexpr std::chrono::milliseconds kLastRetry{1000};
  static constexpr std::chrono::seconds kConnectTimeout{2};
  static constexpr size_t kMaxQueuedBytes = 16 << 20;
  static constexpr int kBeatsPerTimeout = 4;

  RendezvousLink(boost::asio::io_context& io, Config config, Handlers handlers);
  ~RendezvousLink();

  void Connect();
  // Dropped while there is no connection: the snapshot says it again.
  void Send(const wire::Message& message);
  // Calls `done` when everything is handed to the kernel, at `timeout` at the latest. With no
  // connection it waits for one.
  void Flush(Duration timeout, std::function<void()> done);

 private:
  struct Connection;

  void OnConnected();
  void Read();
  void Write();
  void Beat();
  void Broken(const std::string& why);
  void FlushDone();

  boost::asio::io_context& io_;
  const Config config_;
  const Handlers handlers_;
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::steady_timer retry_timer_;
  boost::asio::steady_timer beat_timer_;
  boost::asio::steady_timer flush_timer_;
  std::shared_ptr<Connection> connection_;  // shared with its pending operations; null: none
  bool up_ = false;                         // Hello is said
  bool told_down_ = false;                  // the log says once that it is away
  Duration retry_ = kFirstRetry;
  Duration beat_interval_ = std::chrono::milliseconds(250);
  std::function<void()> flush_done_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_SUPERVISOR_LINK_H_
