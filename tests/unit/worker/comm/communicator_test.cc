// Every operation, over both kinds of sockets, with one to five members.
#include "worker/comm/communicator.h"

#include <gmock/gmock.h>

#include <atomic>
#include <map>

#include "tests/unit/worker/comm/cluster.h"

namespace everstep {
namespace {

using testing::Cluster;
using testing::CodeOf;
using testing::ExpectAllOk;
using ::testing::HasSubstr;
using testing::MessageOf;
using testing::OnAll;
using testing::Pattern;

struct Setup {
  int members;
  bool use_unix_sockets;
};

class CommunicatorTest : public ::testing::TestWithParam<Setup> {
 protected:
  CommunicatorTest()
      : cluster_(GetParam().members, GetParam().use_unix_sockets),
        communicators_(cluster_.ConnectAll(cluster_.Everybody(7))) {}

  Cluster cluster_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

INSTANTIATE_TEST_SUITE_P(All, CommunicatorTest,
                         ::testing::Values(Setup{1, true}, Setup{2, true}, Setup{3, true},
                                           Setup{4, true}, Setup{5, true}, Setup{2, false},
                                           Setup{3, false}, Setup{5, false}),
                         [](const auto& info) {
                           return std::to_string(info.param.members) +
                                  (info.param.use_unix_sockets ? "Unix" : "Tcp");
                         });

uint32_t PairSeed(int from, int to) { return static_cast<uint32_t>(100 * from + to); }

// Everybody sends everybody (itself too) `size(from, to)` bytes, cut in two uneven pieces.
Status ExchangePatterns(Communicator& me, const std::function<size_t(int, int)>& size) {
  std::vector<std::vector<std::byte>> outgoing;
  std::vector<std::vector<std::byte>> incoming;
  std::vector<SendPiece> sends;
  std::vector<ReceivePiece> receives;
  for (int peer = 0; peer < me.size(); ++peer) {
    outgoing.push_back(Pattern(size(me.rank(), peer), PairSeed(me.rank(), peer)));
    incoming.emplace_back(size(peer, me.rank()));
  }
  for (int peer = 0; peer < me.size(); ++peer) {
    const ConstBytes out = outgoing[peer];
    const MutableBytes in = incoming[peer];
    sends.push_back({peer, out.first(out.size() / 3)});
    sends.push_back({peer, out.subspan(out.size() / 3)});
    receives.push_back({peer, in.first(in.size() / 2)});
    receives.push_back({peer, in.subspan(in.size() / 2)});
  }
  RETURN_IF_ERROR(me.Exchange(sends, receives));
  for (int peer = 0; peer < me.size(); ++peer) {
    EXPECT_EQ(incoming[peer], Pattern(size(peer, me.rank()), PairSeed(peer, me.rank())));
  }
  return {};
}

TEST_P(CommunicatorTest, KnowsItsPlace) {
  for (int i = 0; i < GetParam().members; ++i) {
    EXPECT_EQ(communicators_[i]->rank(), i);
    EXPECT_EQ(communicators_[i]->size(), GetParam().members);
    EXPECT_EQ(communicators_[i]->generation(), 7U);
    EXPECT_EQ(communicators_[i]->lost_rank(), -1);
  }
}

TEST_P(CommunicatorTest, ExchangeOfAnySize) {
  for (const size_t base : {0U, 1U, 12345U, 700001U}) {
    ExpectAllOk(OnAll(communicators_, [&](Communicator& me) {
      return ExchangePatterns(me, [&](int from, int to) {
        return base == 0 ? 0 : base + static_cast<size_t>(7 * from + 3 * to);
      });
    }));
  }
}

TEST_P(CommunicatorTest, ExchangeInWhichOnlySomePairsHaveBytes) {
  ExpectAllOk(OnAll(communicators_, [](Communicator& me) {
    return ExchangePatterns(
        me, [](int from, int to) { return from > to ? static_cast<size_t>(70001) : 0; });
  }));
}

TEST_P(CommunicatorTest, ExchangeOfManySmallPieces) {
  static constexpr int kPieces = 1000;
  ExpectAllOk(OnAll(communicators_, [](Communicator& me) -> Status {
    std::vector<int> values(kPieces);
    std::iota(values.begin(), values.end(), me.rank());
    std::vector<SendPiece> sends;
    std::vector<ReceivePiece> receives;
    std::vector<std::vector<int>> received(me.size(), std::vector<int>(kPieces));
    for (int peer = 0; peer < me.size(); ++peer) {
      for (int i = 0; i < kPieces; ++i) {
        sends.push_back({peer, AsConstBytes(std::span<const int>(&values[i], 1))});
      }
      receives.push_back({peer, AsMutableBytes(std::span(received[peer]))});
    }
    RETURN_IF_ERROR(me.Exchange(sends, receives));
    for (int peer = 0; peer < me.size(); ++peer) {
      EXPECT_EQ(received[peer].front(), peer);
      EXPECT_EQ(received[peer].back(), peer + kPieces - 1);
    }
    return {};
  }));
}

TEST_P(CommunicatorTest, ProgressGrowsToTheWhole) {
  static constexpr size_t kBytes = 1 << 20;
  ExpectAllOk(OnAll(communicators_, [](Communicator& me) -> Status {
    const std::vector<std::byte> out = Pattern(kBytes, 1);
    std::vector<std::vector<std::byte>> in(me.size(), std::vector<std::byte>(kBytes));
    std::vector<SendPiece> sends;
    std::vector<ReceivePiece> receives;
    for (int peer = 0; peer < me.size(); ++peer) {
      if (peer == me.rank()) continue;
      sends.push_back({peer, out});
      receives.push_back({peer, in[peer]});
    }
    std::map<int, size_t> seen;
    RETURN_IF_ERROR(me.Exchange(sends, receives, [&](int from, size_t bytes) {
      EXPECT_GE(bytes, seen[from]);
      EXPECT_EQ(in[from][bytes - 1], out[bytes - 1]);
      seen[from] = bytes;
    }));
    EXPECT_EQ(seen.size(), static_cast<size_t>(me.size() - 1));
    for (const auto& [from, bytes] : seen) EXPECT_EQ(bytes, kBytes);
    return {};
  }));
}

TEST_P(CommunicatorTest, AllGatherWithCountsPerMember) {
  for (const size_t unit : {0U, 1U, 333U, 400000U}) {
    for (const bool in_place : {false, true}) {
      ExpectAllOk(OnAll(communicators_, [&](Communicator& me) -> Status {
        std::vector<std::vector<std::byte>> parts;
        std::vector<MutableBytes> spans;
        for (int i = 0; i < me.size(); ++i) parts.emplace_back(unit * i);
        for (auto& part : parts) spans.emplace_back(part);
        const std::vector<std::byte> mine = Pattern(unit * me.rank(), me.rank());
        if (in_place) parts[me.rank()] = mine;
        spans[me.rank()] = parts[me.rank()];
        RETURN_IF_ERROR(me.AllGather(in_place ? ConstBytes(spans[me.rank()]) : mine, spans));
        for (int i = 0; i < me.size(); ++i) EXPECT_EQ(parts[i], Pattern(unit * i, i));
        return {};
      }));
    }
  }
}

TEST_P(CommunicatorTest, BroadcastFromEveryRoot) {
  for (int root = 0; root < GetParam().members; ++root) {
    for (const size_t size : {0U, 1U, 65537U, 1000003U}) {
      ExpectAllOk(OnAll(communicators_, [&](Communicator& me) -> Status {
        std::vector<std::byte> bytes(size);
        if (me.rank() == root) bytes = Pattern(size, 5);
        RETURN_IF_ERROR(me.Broadcast(root, bytes));
        EXPECT_EQ(bytes, Pattern(size, 5));
        return {};
      }));
    }
  }
}

TEST_P(CommunicatorTest, NobodyPassesABarrierBeforeAllHaveCome) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> arrived{0};
    ExpectAllOk(OnAll(communicators_, [&](Communicator& me) -> Status {
      ++arrived;
      RETURN_IF_ERROR(me.Barrier());
      EXPECT_EQ(arrived.load(), me.size());
      return {};
    }));
  }
}

TEST_P(CommunicatorTest, SendAndReceiveAroundTheRing) {
  if (GetParam().members == 1) return;  // nobody to send to
  for (const size_t size : {0U, 1U, 2000003U}) {
    ExpectAllOk(OnAll(communicators_, [&](Communicator& me) -> Status {
      const int next = (me.rank() + 1) % me.size();
      const int last = (me.rank() + me.size() - 1) % me.size();
      std::vector<std::byte> token = Pattern(size, 9);
      if (me.rank() == 0) {
        RETURN_IF_ERROR(me.Send(next, token));
        std::fill(token.begin(), token.end(), std::byte{0});
        RETURN_IF_ERROR(me.Receive(last, token));
      } else {
        std::fill(token.begin(), token.end(), std::byte{0});
        RETURN_IF_ERROR(me.Receive(last, token));
        RETURN_IF_ERROR(me.Send(next, token));
      }
      EXPECT_EQ(token, Pattern(size, 9));
      return {};
    }));
  }
}

TEST_P(CommunicatorTest, OperationsFollowEachOtherWithoutBarriers) {
  ExpectAllOk(OnAll(communicators_, [](Communicator& me) -> Status {
    for (int round = 0; round < 50; ++round) {
      int64_t value = me.rank() == round % me.size() ? round : -1;
      RETURN_IF_ERROR(me.Broadcast(round % me.size(), AsMutableBytes(std::span(&value, 1))));
      EXPECT_EQ(value, round);
      RETURN_IF_ERROR(ExchangePatterns(me, [&](int from, int to) {
        return static_cast<size_t>((from + 1) * (to + 1) * round);
      }));
    }
    return {};
  }));
}

TEST(CommunicatorSizesTest, SixtyFourMebibytesEachWay) {
  for (const bool use_unix_sockets : {true, false}) {
    Cluster cluster(2, use_unix_sockets);
    auto communicators = cluster.ConnectAll(cluster.Everybody(1));
    static constexpr size_t kBytes = 64 << 20;
    ExpectAllOk(OnAll(communicators, [](Communicator& me) -> Status {
      const std::vector<std::byte> out = Pattern(kBytes, me.rank());
      std::vector<std::byte> in(kBytes);
      const SendPiece send{1 - me.rank(), out};
      const ReceivePiece receive{1 - me.rank(), in};
      RETURN_IF_ERROR(me.Exchange({&send, 1}, {&receive, 1}));
      EXPECT_TRUE(in == Pattern(kBytes, 1 - me.rank()));
      return {};
    }));
  }
}

TEST(CommunicatorErrorsTest, MembersThatDisagreeOnASizeAreTold) {
  Cluster cluster(2);
  auto communicators = cluster.ConnectAll(cluster.Everybody(3));

  const auto results = OnAll(communicators, [](Communicator& me) {
    std::vector<std::byte> bytes(me.rank() == 0 ? 10 : 11);
    return me.rank() == 0 ? me.Send(1, bytes) : me.Receive(0, bytes);
  });

  EXPECT_EQ(CodeOf(results[1]), ErrorCode::kInternal);
  EXPECT_THAT(MessageOf(results[1]), HasSubstr("generation 3: rank 0 disagrees"));
  EXPECT_EQ(CodeOf(communicators[1]->Barrier()), ErrorCode::kInternal) << "it stays broken";
}

TEST(CommunicatorErrorsTest, MembersThatDisagreeOnTheOperationAreTold) {
  Cluster cluster(2);
  auto communicators = cluster.ConnectAll(cluster.Everybody(3));

  const auto results = OnAll(communicators, [](Communicator& me) {
    return me.rank() == 0 ? me.Barrier() : me.Exchange({}, {});
  });

  // Whoever notices first tells the other.
  const bool first = CodeOf(results[0]) == ErrorCode::kInternal;
  EXPECT_TRUE(first || CodeOf(results[1]) == ErrorCode::kInternal);
  EXPECT_TRUE(CodeOf(results[0]).has_value() && CodeOf(results[1]).has_value());
  EXPECT_THAT(MessageOf(results[first ? 0 : 1]), HasSubstr("barrier"));
  EXPECT_THAT(MessageOf(results[first ? 0 : 1]), HasSubstr("exchange"));
}

TEST(CommunicatorErrorsTest, PiecesToOneselfMustFit) {
  Cluster cluster(1);
  auto communicators = cluster.ConnectAll(cluster.Everybody(1));
  std::vector<std::byte> bytes(4);
  const SendPiece send{0, bytes};

  EXPECT_EQ(CodeOf(communicators[0]->Exchange({&send, 1}, {})), ErrorCode::kInternal);
}

}  // namespace
}  // namespace everstep
