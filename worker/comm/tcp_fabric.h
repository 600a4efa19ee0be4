// The process's place in the mesh of sockets: one listener for its whole life, and a communicator
// for each generation that it is a member of.
//
//   ASSIGN_OR_RETURN(auto fabric, TcpFabric::Create(options));
//   ... send Ready{fabric->endpoint()}, receive the Membership ...
//   ASSIGN_OR_RETURN(auto communicator, fabric->Connect(membership, my_rank, deadline, stop));
//
// Every two members share a data connection and a small control connection (farewells: "I abort
// this generation", "I leave"), so that a peer that gives up is told apart from one that died.
// The connections say hello with job, generation, and a digest of the membership:
//   an older generation than the newest one connected here is refused (the fence);
//   a newer one, of which this process has not heard yet, waits here for a bounded time.
// Members within one network namespace use Unix-domain sockets (a quarter less
// processor time than TCP over loopback, see tests/benchmark/comm_benchmark.cc).
#ifndef EVERSTEP_WORKER_COMM_TCP_FABRIC_H_
#define EVERSTEP_WORKER_COMM_TCP_FABRIC_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "common/clock.h"
#include "common/result.h"
#include "common/wire.h"
#include "worker/comm/communicator.h"

namespace everstep {

class TcpLobby;

struct TcpFabricOptions {
  std::string bind_ip = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one
  // Name and shared secret of the job; connections of another one are refused.
  std::string job;
  std::string token;
  bool use_unix_sockets = true;  // where both ends are on one machine
};

// bind_ip from EVERSTEP_POD_IP, job from EVERSTEP_JOB, token from EVERSTEP_TOKEN.
TcpFabricOptions TcpFabricOptionsFromEnvironment();

class TcpFabric {
 public:
  // Listens at once. kInvalidArgument: bind_ip is no address of this machine; kUnavailable: the
  // port is in use.
  static Result<std::unique_ptr<TcpFabric>> Create(const TcpFabricOptions& options);
  ~TcpFabric();
  TcpFabric(const TcpFabric&) = delete;
  TcpFabric& operator=(const TcpFabric&) = delete;

  // "ip:port" for wire::Ready and wire::Member.
  const std::string& endpoint() const { return endpoint_; }

  // The full mesh of `membership`, in which this process is the member with rank `my_rank`. Returns
  // when this process is connected with every other member; each waits for the others until
  // `deadline`. A request to stop ends the wait, and aborts the communicator later on.
  //   kFailedPrecondition  not a member, or the generation is not newer than the last one connected
  //   kAborted             stopped, or a peer is already in a newer generation
  //   kDeadlineExceeded    the message names the members that are missing
  //   kInvalidArgument     a malformed endpoint
  // One caller at a time. The communicator may outlive the fabric.
  Result<std::unique_ptr<Communicator>> Connect(const wire::Membership& membership, int my_rank,
                                                TimePoint deadline, std::stop_token stop = {});

  // The newest generation seen in any peer's hello: when it is above ours, news is on its way.
  uint64_t newest_generation_seen() const;

 private:
  explicit TcpFabric(const TcpFabricOptions& options);

  const TcpFabricOptions options_;
  std::string endpoint_;
  std::unique_ptr<TcpLobby> lobby_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_COMM_TCP_FABRIC_H_
