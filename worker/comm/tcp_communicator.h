// The TCP communicator of one generation. The caller's thread does all the work: it runs the
// io_context for as long as an operation lasts, with all peers at once; between operations nothing
// runs. Abort only sets a flag, says farewell on the control connections, and wakes that thread.
#ifndef EVERSTEP_WORKER_COMM_TCP_COMMUNICATOR_H_
#define EVERSTEP_WORKER_COMM_TCP_COMMUNICATOR_H_

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/comm/frame.h"
#include "worker/comm/tcp_mesh.h"
#include "worker/comm/tcp_stream.h"

namespace everstep {

class TcpCommunicator final : public Communicator {
 public:
  // After a data connection broke, how long the control connection has to say whether the peer
  // aborted or died. The kernel closes both within microseconds.
  static constexpr auto kFarewellTimeout = std::chrono::milliseconds(20);
  // Broadcasts of at least this size are cut up, so that all members send.
  static constexpr size_t kScatterBroadcastBytes = 64 << 10;

  TcpCommunicator(const wire::Membership& membership, int position, uint64_t job,
                  std::vector<TcpLink> links, std::stop_token stop);
  ~TcpCommunicator() override;

  int rank() const override { return position_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  uint64_t generation() const override { return generation_; }
  using Communicator::Exchange;
  Status Exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives,
                  const ReceiveProgress& progress) override;
  Status AllGather(ConstBytes mine, std::span<const MutableBytes> parts) override;
  Status Broadcast(int root, MutableBytes bytes) override;
  Status Barrier() override;
  Status Send(int to, ConstBytes bytes) override;
  Status Receive(int from, MutableBytes bytes) override;
  void Abort() override;
  int lost_rank() const override { return lost_rank_.load(); }

 private:
  struct Peer {
    Peer(boost::asio::io_context& io, int position, int rank)
        : position(position), rank(rank), data(io), control(io), farewell_timer(io) {}
    const int position;
    const int rank;  // process number
    StreamSocket data;
    StreamSocket control;
    OutStream out;
    InStream in;
    uint64_t frames_sent = 0;
    uint64_t frames_received = 0;
    FrameBytes farewell{};
    bool left = false;         // said kLeave
    bool data_broken = false;  // waiting for the farewell that explains it
    boost::asio::steady_timer farewell_timer;
  };

  // One operation: Begin, fill and activate the streams of each peer that takes part, Run.
  Status Begin(FrameKind kind);
  void StartOut(Peer& peer);
  void StartIn(Peer& peer);
  Status Run(const ReceiveProgress& progress = nullptr);
  Status Finish();

  void Write(Peer& peer);
  void Read(Peer& peer);
  void OnRead(Peer& peer, size_t bytes);
  bool CheckHeader(Peer& peer);
  void ReadControl(Peer& peer);
  void OnFarewell(Peer& peer);
  void OnDataBroken(Peer& peer);
  void OnLost(Peer& peer);

  Status CopyToSelf(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives);
  Status ScatterBroadcast(int root, MutableBytes bytes);
  void Fail(ErrorCode code, std::string message);
  void SayFarewellLocked(FrameKind kind, int lost_rank);
  void CloseAll();
  std::string Prefix() const { return "generation " + std::to_string(generation_) + ": "; }

  const int position_;
  const int my_rank_;
  const uint64_t generation_;
  const uint64_t job_;

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::vector<std::unique_ptr<Peer>> peers_;  // by position; null at position_

  // The operation in progress; caller's thread only.
  FrameKind kind_ = FrameKind::kBarrier;
  int pending_ = 0;  // streams that are not finished
  const ReceiveProgress* progress_ = nullptr;
  std::optional<Error> error_;  // the first one; the communicator is broken

  std::atomic<bool> aborted_{false};
  std::atomic<int> lost_rank_{-1};
  std::mutex farewell_mutex_;
  std::vector<int> control_fds_;  // of peers still to be told; empty once told or closed
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_COMM_TCP_COMMUNICATOR_H_
