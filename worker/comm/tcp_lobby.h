// Where connections from peers arrive: a listener with a thread of its own that reads hellos,
// refuses strangers and older generations, and keeps the others until their generation is
// connected here.
#ifndef EVERSTEP_WORKER_COMM_TCP_LOBBY_H_
#define EVERSTEP_WORKER_COMM_TCP_LOBBY_H_

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>

#include "common/clock.h"
#include "common/result.h"
#include "worker/comm/frame.h"
#include "worker/comm/tcp_socket.h"

namespace everstep {

struct TcpFabricOptions;

class TcpLobby {
 public:
  static constexpr size_t kMaxHandshakes = 1024;  // connections that have not said hello yet
  static constexpr size_t kMaxParked = 4096;      // connections of generations yet to come
  static constexpr auto kHelloTimeout = std::chrono::seconds(5);
  static constexpr auto kParkTimeout = std::chrono::seconds(30);
  static constexpr auto kAcceptRetry = std::chrono::milliseconds(10);

  // A peer that said hello and waits for its answer.
  struct Guest {
    CommFrame hello;
    UniqueFd socket;
  };
  // Called on the lobby's thread or from within Expect; must not call back into the lobby.
  using Receiver = std::function<void(Guest)>;

  static Result<std::unique_ptr<TcpLobby>> Open(const TcpFabricOptions& options);
  ~TcpLobby();

  const TcpEndpoint& endpoint() const { return endpoint_; }
  uint64_t newest_generation_seen() const { return newest_seen_.load(); }

  // Refuses everything older than `generation` from now on, and hands the guests of that
  // generation, those who wait already included, to `receiver`.
  // kFailedPrecondition when `generation` is not newer than the last one.
  Status Expect(uint64_t generation, Receiver receiver);
  // After this returns the receiver is not called any more; later guests are refused.
  void StopExpecting();

 private:
  struct Handshake;
  struct Parked {
    Guest guest;
    TimePoint since;
  };
  using ParkKey = std::tuple<uint64_t, int32_t, FrameKind>;  // generation, sender, channel

  explicit TcpLobby(const TcpFabricOptions& options);
  Status Listen(const TcpFabricOptions& options);
  template <typename Acceptor>
  void Accept(Acceptor& acceptor);
  void StartHandshake(StreamSocket socket);
  void OnHello(Handshake& handshake);
  void Admit(Guest guest);                                // with mutex_ held
  void Refuse(const Guest& guest, Refusal reason) const;  // with mutex_ held
  void SweepLater();

  const uint64_t job_;
  TcpEndpoint endpoint_;
  std::atomic<uint64_t> newest_seen_{0};

  size_t handshakes_ = 0;  // lobby thread only; outlives io_, whose handlers count it down
  boost::asio::io_context io_{1};
  boost::asio::ip::tcp::acceptor tcp_acceptor_{io_};
  boost::asio::local::stream_protocol::acceptor unix_acceptor_{io_};
  boost::asio::steady_timer sweep_{io_};
  boost::asio::steady_timer accept_retry_{io_};

  std::mutex mutex_;
  uint64_t fence_ = 0;
  Receiver receiver_;
  std::map<ParkKey, Parked> parked_;

  std::thread thread_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_COMM_TCP_LOBBY_H_
