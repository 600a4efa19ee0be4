#include "worker/comm/tcp_fabric.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "worker/comm/tcp_communicator.h"
#include "worker/comm/tcp_lobby.h"
#include "worker/comm/tcp_mesh.h"

namespace everstep {

TcpFabricOptions TcpFabricOptionsFromEnvironment() {
  TcpFabricOptions options;
  if (const char* ip = std::getenv("EVERSTEP_POD_IP"); ip != nullptr && *ip != '\0') {
    options.bind_ip = ip;
  }
  if (const char* job = std::getenv("EVERSTEP_JOB")) options.job = job;
  if (const char* token = std::getenv("EVERSTEP_TOKEN")) options.token = token;
  return options;
}

TcpFabric::TcpFabric(const TcpFabricOptions& options) : options_(options) {}
TcpFabric::~TcpFabric() = default;

Result<std::unique_ptr<TcpFabric>> TcpFabric::Create(const TcpFabricOptions& options) {
  std::unique_ptr<TcpFabric> fabric(new TcpFabric(options));
  ASSIGN_OR_RETURN(fabric->lobby_, TcpLobby::Open(options));
  fabric->endpoint_ = FormatEndpoint(fabric->lobby_->endpoint());
  return fabric;
}

uint64_t TcpFabric::newest_generation_seen() const { return lobby_->newest_generation_seen(); }

Result<std::unique_ptr<Communicator>> TcpFabric::Connect(const wire::Membership& membership,
                                                         int my_rank, TimePoint deadline,
                                                         std::stop_token stop) {
  MeshRequest request{.membership = membership,
                      .endpoints = {},
                      .position = -1,
                      .job = JobHash(options_.job, options_.token),
                      .use_unix_sockets = options_.use_unix_sockets,
                      .deadline = deadline,
                      .stop = stop};
  for (size_t i = 0; i < membership.members.size(); ++i) {
    const wire::Member& member = membership.members[i];
    if (member.rank == my_rank) request.position = static_cast<int>(i);
    ASSIGN_OR_RETURN(const TcpEndpoint endpoint, ParseEndpoint(member.endpoint));
    request.endpoints.push_back(endpoint);
  }
  if (request.position < 0) {
    return MakeError(ErrorCode::kFailedPrecondition, "rank " + std::to_string(my_rank) +
                                                         " is no member of generation " +
                                                         std::to_string(membership.generation));
  }
  try {
    ASSIGN_OR_RETURN(std::vector<TcpLink> links, BuildMesh(*lobby_, request));
    return std::make_unique<TcpCommunicator>(membership, request.position, request.job,
                                             std::move(links), std::move(stop));
  } catch (const boost::system::system_error& error) {  // no descriptors left for Asio
    return MakeError(ErrorCode::kResourceExhausted, "generation " +
                                                        std::to_string(membership.generation) +
                                                        ": cannot connect: " + error.what());
  }
}

}  // namespace everstep
