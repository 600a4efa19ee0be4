// Builds the connections of one generation: each member dials those before it and is dialled by
// those after it, twice per pair (data and control).
#ifndef EVERSTEP_WORKER_COMM_TCP_MESH_H_
#define EVERSTEP_WORKER_COMM_TCP_MESH_H_

#include <cstdint>
#include <stop_token>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "common/wire.h"
#include "worker/comm/tcp_lobby.h"
#include "worker/comm/tcp_socket.h"

namespace everstep {

struct TcpLink {
  UniqueFd data;
  UniqueFd control;
};

struct MeshRequest {
  const wire::Membership& membership;
  std::vector<TcpEndpoint> endpoints;  // of the members
  int position = 0;                    // this process's
  uint64_t job = 0;
  bool use_unix_sockets = true;
  TimePoint deadline;
  std::stop_token stop;
};

// One link per member, empty at `position`. Errors: see TcpFabric::Connect. On an error the peers
// that were connected already are told that this generation is aborted.
Result<std::vector<TcpLink>> BuildMesh(TcpLobby& lobby, const MeshRequest& request);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_COMM_TCP_MESH_H_
