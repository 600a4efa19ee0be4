// A member in a process of its own, to be killed: prints its endpoint, reads the membership (a line
// "generation my_rank count", then "rank endpoint" for each member), connects, prints "connected",
// takes part in exchanges until it is told otherwise by a signal, and prints "exchanging" when
// the bytes of the first one have begun to arrive.
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <iostream>

#include "tests/unit/worker/comm/exchange_load.h"
#include "worker/comm/tcp_fabric.h"

int main() {
  using namespace std::chrono_literals;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto fabric = everstep::TcpFabric::Create({.bind_ip = "127.0.0.1",
                                             .port = 0,
                                             .job = "comm-test",
                                             .token = "secret",
                                             .use_unix_sockets = true});
  if (!fabric) return 1;
  std::cout << (*fabric)->endpoint() << std::endl;
  everstep::wire::Membership membership;
  int my_rank = 0;
  int count = 0;
  std::cin >> membership.generation >> my_rank >> count;
  for (int i = 0; i < count; ++i) {
    everstep::wire::Member member;
    std::cin >> member.rank >> member.endpoint;
    member.logical_ranks = {member.rank};
    membership.members.push_back(member);
  }
  auto communicator =
      (*fabric)->Connect(membership, my_rank, std::chrono::steady_clock::now() + 60s);
  if (!communicator) {
    std::cerr << communicator.error().message << std::endl;
    return 1;
  }
  std::cout << "connected" << std::endl;
  bool told = false;
  const auto progress = [&](int, size_t) {
    if (!std::exchange(told, true)) std::cout << "exchanging" << std::endl;
  };
  while (everstep::testing::ExchangeLoad(**communicator, progress)) {
  }
  return 0;
}
