// How fast a generation ends and the next one begins: N members (threads of one process, each with
// its own fabric and real sockets) exchange large buffers; one member is aborted from another
// thread in the middle of it; then all connect the next generation.
//
//   comm_regroup_benchmark [members] [generations]
//
// prints one JSON object: from Abort() to the return of that member's own call, to the return of
// the last member's, and the time in which all connect, in milliseconds (median and worst).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/check.h"
#include "worker/comm/tcp_fabric.h"

namespace everstep {
namespace {

using Clock = std::chrono::steady_clock;
using Communicators = std::vector<std::unique_ptr<Communicator>>;

constexpr size_t kBytes = 64 << 20;  // per exchange and pair
constexpr auto kConnectTimeout = std::chrono::seconds(30);

double Since(TimePoint start) { return Milliseconds(Clock::now() - start); }

template <typename Body>
void OnAll(size_t members, Body body) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

void ExchangeUntilAborted(Communicator& me, std::vector<std::byte>& out, std::vector<std::byte>& in,
                          std::atomic<int>& under_way) {
  std::vector<SendPiece> sends;
  std::vector<ReceivePiece> receives;
  for (int peer = 0; peer < me.size(); ++peer) {
    if (peer == me.rank()) continue;
    sends.push_back({peer, out});
    receives.push_back({peer, in});  // what arrives does not matter
  }
  bool told = false;
  const auto progress = [&](int, size_t) {
    if (!std::exchange(told, true)) ++under_way;
  };
  while (me.Exchange(sends, receives, progress)) {
  }
}

struct Times {
  std::vector<double> own_ms, last_ms, connect_ms;
};

void RunGeneration(std::vector<std::unique_ptr<TcpFabric>>& fabrics, uint64_t generation,
                   Times& times) {
  const size_t members = fabrics.size();
  wire::Membership membership;
  membership.generation = generation;
  for (size_t i = 0; i < members; ++i) {
    membership.members.push_back({.rank = static_cast<int>(i),
                                  .endpoint = fabrics[i]->endpoint(),
                                  .logical_ranks = {static_cast<int>(i)},
                                  .newcomer = false});
  }
  Communicators communicators(members);
  const TimePoint connect_start = Clock::now();
  OnAll(members, [&](size_t i) {
    auto connected =
        fabrics[i]->Connect(membership, static_cast<int>(i), Clock::now() + kConnectTimeout);
    EVERSTEP_CHECK(connected.has_value());
    communicators[i] = std::move(*connected);
  });
  times.connect_ms.push_back(Since(connect_start));

  static std::vector<std::byte> out(kBytes);
  static std::vector<std::vector<std::byte>> in(members, std::vector<std::byte>(kBytes));
  std::atomic<int> under_way{0};
  std::vector<double> returned_ms(members);
  std::atomic<TimePoint> aborted_at{TimePoint{}};
  std::thread aborter([&] {
    while (under_way.load() < static_cast<int>(members)) std::this_thread::yield();
    aborted_at.store(Clock::now());
    communicators[0]->Abort();
  });
  OnAll(members, [&](size_t i) {
    ExchangeUntilAborted(*communicators[i], out, in[i], under_way);
    returned_ms[i] = Since(aborted_at.load());
  });
  aborter.join();
  times.own_ms.push_back(returned_ms[0]);
  times.last_ms.push_back(*std::max_element(returned_ms.begin(), returned_ms.end()));
}

std::string Summary(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  char text[64];
  std::snprintf(text, sizeof text, "{\"p50\":%.3f,\"max\":%.3f}", values[values.size() / 2],
                values.back());
  return text;
}

}  // namespace
}  // namespace everstep

int main(int argc, char** argv) {
  const int members = argc > 1 ? std::atoi(argv[1]) : 4;
  const int generations = argc > 2 ? std::atoi(argv[2]) : 50;
  EVERSTEP_CHECK(members >= 2 && members <= 64 && generations >= 1);
  std::vector<std::unique_ptr<everstep::TcpFabric>> fabrics;
  for (int i = 0; i < members; ++i) {
    auto fabric = everstep::TcpFabric::Create({.job = "comm-benchmark", .token = {}});
    EVERSTEP_CHECK(fabric.has_value());
    fabrics.push_back(std::move(*fabric));
  }
  everstep::Times times;
  for (int generation = 1; generation <= generations; ++generation) {
    everstep::RunGeneration(fabrics, generation, times);
  }
  std::printf(
      "{\"members\":%d,\"generations\":%d,\"abort_own_ms\":%s,\"abort_last_ms\":%s,"
      "\"connect_ms\":%s}\n",
      members, generations, everstep::Summary(times.own_ms).c_str(),
      everstep::Summary(times.last_ms).c_str(), everstep::Summary(times.connect_ms).c_str());
  return 0;
}
