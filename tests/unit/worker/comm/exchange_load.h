// An exchange large enough to be interrupted.
#ifndef EVERSTEP_TESTS_UNIT_WORKER_COMM_EXCHANGE_LOAD_H_
#define EVERSTEP_TESTS_UNIT_WORKER_COMM_EXCHANGE_LOAD_H_

#include <vector>

#include "worker/comm/communicator.h"

namespace everstep::testing {

inline constexpr size_t kLoadBytes = 32 << 20;  // per pair and direction

inline Status ExchangeLoad(Communicator& me, const ReceiveProgress& progress = nullptr) {
  const std::vector<std::byte> out(kLoadBytes);
  std::vector<std::vector<std::byte>> in(me.size());
  std::vector<SendPiece> sends;
  std::vector<ReceivePiece> receives;
  for (int peer = 0; peer < me.size(); ++peer) {
    if (peer == me.rank()) continue;
    in[peer].resize(kLoadBytes);
    sends.push_back({peer, out});
    receives.push_back({peer, in[peer]});
  }
  return me.Exchange(sends, receives, progress);
}

}  // namespace everstep::testing

#endif  // EVERSTEP_TESTS_UNIT_WORKER_COMM_EXCHANGE_LOAD_H_
