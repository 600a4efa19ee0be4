// Several members in one test process: a fabric and a thread for each.
#ifndef EVERSTEP_TESTS_UNIT_WORKER_COMM_CLUSTER_H_
#define EVERSTEP_TESTS_UNIT_WORKER_COMM_CLUSTER_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker/comm/tcp_fabric.h"

namespace everstep::testing {

// Far longer than anything here takes: a test that hangs ends, and fails, after it.
inline TimePoint Deadline() { return std::chrono::steady_clock::now() + std::chrono::seconds(60); }

inline TcpFabricOptions LoopbackOptions(bool use_unix_sockets = true) {
  return {.bind_ip = "127.0.0.1",
          .port = 0,
          .job = "comm-test",
          .token = "secret",
          .use_unix_sockets = use_unix_sockets};
}

// The code of an error, or nothing for success.
template <typename T>
std::optional<ErrorCode> CodeOf(const Result<T>& result) {
  if (result.has_value()) return std::nullopt;
  return result.error().code;
}
template <typename T>
std::string MessageOf(const Result<T>& result) {
  return result.has_value() ? "" : result.error().message;
}

class Cluster {
 public:
  explicit Cluster(int processes, bool use_unix_sockets = true) {
    for (int rank = 0; rank < processes; ++rank) {
      auto fabric = TcpFabric::Create(LoopbackOptions(use_unix_sockets));
      EXPECT_TRUE(fabric.has_value()) << MessageOf(fabric);
      fabrics_.push_back(std::move(*fabric));
    }
  }

  TcpFabric& fabric(int rank) { return *fabrics_[rank]; }

  // The given ranks as members, each hosting its own logical rank.
  wire::Membership Members(uint64_t generation, const std::vector<int>& ranks) const {
    wire::Membership membership;
    membership.generation = generation;
    for (const int rank : ranks) {
      membership.members.push_back({.rank = rank,
                                    .endpoint = fabrics_[rank]->endpoint(),
                                    .logical_ranks = {rank},
                                    .newcomer = false});
    }
    return membership;
  }
  wire::Membership Everybody(uint64_t generation) const {
    std::vector<int> ranks(fabrics_.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return Members(generation, ranks);
  }

  // Connects all members at once and returns their communicators, by position.
  std::vector<std::unique_ptr<Communicator>> ConnectAll(const wire::Membership& membership) {
    std::vector<std::unique_ptr<Communicator>> communicators(membership.members.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < membership.members.size(); ++i) {
      threads.emplace_back([&, i] {
        const int rank = membership.members[i].rank;
        auto communicator = fabrics_[rank]->Connect(membership, rank, Deadline());
        EXPECT_TRUE(communicator.has_value()) << MessageOf(communicator);
        if (communicator) communicators[i] = std::move(*communicator);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return communicators;
  }

 private:
  std::vector<std::unique_ptr<TcpFabric>> fabrics_;
};

// Runs `body` for every communicator at once; the results by position.
inline std::vector<Status> OnAll(std::vector<std::unique_ptr<Communicator>>& communicators,
                                 const std::function<Status(Communicator&)>& body) {
  std::vector<Status> results(communicators.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < communicators.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = body(*communicators[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

inline void ExpectAllOk(const std::vector<Status>& results) {
  for (const Status& result : results) EXPECT_TRUE(result.has_value()) << MessageOf(result);
}

// `size` bytes that depend on `seed` and on their place.
inline std::vector<std::byte> Pattern(size_t size, uint32_t seed) {
  std::vector<std::byte> bytes(size);
  uint64_t state = seed + 1;
  for (size_t done = 0; done < size; done += sizeof state) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(bytes.data() + done, &state, std::min(sizeof state, size - done));
  }
  return bytes;
}

}  // namespace everstep::testing

#endif  // EVERSTEP_TESTS_UNIT_WORKER_COMM_CLUSTER_H_
