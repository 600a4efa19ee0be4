// The same bits for every membership: the claim that the whole product rests on.
#include "worker/parallel/ordered_reduce.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/unit/worker/comm/cluster.h"
#include "worker/parallel/ordered_sum.h"

namespace everstep {
namespace {

using testing::Cluster;
using testing::CodeOf;
using testing::ExpectAllOk;
using testing::MessageOf;
using testing::OnAll;

using Vector = std::vector<float>;
// Which logical ranks each member hosts.
using Hosting = std::vector<std::vector<int>>;

std::vector<Vector> Gradients(int logical_world, int64_t size) {
  std::vector<Vector> gradients;
  for (int l = 0; l < logical_world; ++l) {
    std::mt19937 random(l + 1);
    Vector& gradient = gradients.emplace_back(size);
    for (float& value : gradient) {
      value = std::ldexp(static_cast<float>(random()) - 2e9F, static_cast<int>(random() % 20) - 40);
    }
  }
  return gradients;
}

struct Outcome {
  Vector reduced;
  std::vector<double> norms;
  std::vector<int64_t> votes;

  explicit Outcome(int64_t size, size_t members)
      : reduced(size, -1), norms(NormChunks(size), -1), votes(members, -1) {}
};

Status Reduce(Communicator& me, const wire::Membership& membership,
              const std::vector<Vector>& gradients, OrderedReducer& reducer, Outcome& outcome) {
  std::vector<LogicalGradient> local;
  for (const int l : membership.members[me.rank()].logical_ranks) {
    local.push_back({l, gradients[l]});
  }
  const int64_t vote = 1000 + me.rank();
  return reducer.Reduce(me, membership,
                        {.local = local,
                         .scale = 1.0F / 37,
                         .vote = AsConstBytes(std::span<const int64_t>(&vote, 1))},
                        {.reduced = outcome.reduced,
                         .chunk_norms = outcome.norms,
                         .votes = AsMutableBytes(std::span(outcome.votes))});
}

wire::Membership Host(const Cluster& cluster, uint64_t generation, const Hosting& hosting) {
  std::vector<int> ranks(hosting.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  wire::Membership membership = cluster.Members(generation, ranks);
  for (size_t i = 0; i < hosting.size(); ++i) membership.members[i].logical_ranks = hosting[i];
  return membership;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// What one loop over everything gives.
Outcome Reference(const std::vector<Vector>& gradients, int64_t size) {
  Outcome outcome(size, 0);
  for (int64_t i = 0; i < size; ++i) {
    volatile float sum = gradients[0][i];
    for (size_t l = 1; l < gradients.size(); ++l) sum = sum + gradients[l][i];
    outcome.reduced[i] = sum * (1.0F / 37);
  }
  for (int64_t chunk = 0; chunk < NormChunks(size); ++chunk) {
    const int64_t begin = chunk * kNormChunk;
    outcome.norms[chunk] =
        SumOfSquares(outcome.reduced.data() + begin, std::min(kNormChunk, size - begin));
  }
  return outcome;
}

class OrderedReduceTest : public ::testing::TestWithParam<int64_t> {};

INSTANTIATE_TEST_SUITE_P(Sizes, OrderedReduceTest,
                         ::testing::Values(0, 1, 64, kNormChunk, 3 * kNormChunk + 64,
                                           9 * kNormChunk + 1, 20 * kNormChunk + 4160));

TEST_P(OrderedReduceTest, TheBitsAreTheSameForEveryMembership) {
  const int64_t size = GetParam();
  const std::vector<Vector> gradients = Gradients(4, size);
  const Outcome expected = Reference(gradients, size);
  const Hosting hostings[] = {{{0, 1, 2, 3}},          {{0, 1}, {2, 3}},     {{0, 2}, {1, 3}},
                              {{3}, {0, 1, 2}},        {{0}, {1}, {2, 3}},   {{0, 3}, {1}, {2}},
                              {{0}, {1}, {2}, {3}},    {{3}, {2}, {1}, {0}}, {{1, 2}, {}, {0, 3}},
                              {{0}, {1}, {2}, {3}, {}}};
  Cluster cluster(5);
  uint64_t generation = 0;
  for (const Hosting& hosting : hostings) {
    const wire::Membership membership = Host(cluster, ++generation, hosting);
    auto communicators = cluster.ConnectAll(membership);
    std::vector<Outcome> outcomes(hosting.size(), Outcome(size, hosting.size()));

    ExpectAllOk(OnAll(communicators, [&](Communicator& me) {
      OrderedReducer reducer({.round_elements = 2 * kNormChunk});
      return Reduce(me, membership, gradients, reducer, outcomes[me.rank()]);
    }));

    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(SameBits(outcome.reduced, expected.reduced)) << "hosting " << generation;
      EXPECT_TRUE(SameBits(outcome.norms, expected.norms)) << "hosting " << generation;
      for (size_t i = 0; i < hosting.size(); ++i) {
        EXPECT_EQ(outcome.votes[i], 1000 + static_cast<int64_t>(i));
      }
    }
  }
}

TEST(OrderedReducerTest, OneReducerServesVectorsOfDifferentSizesAndMemberships) {
  Cluster cluster(2);
  std::vector<OrderedReducer> reducers(2);
  uint64_t generation = 0;
  for (const int64_t size : {5 * kNormChunk, kNormChunk, 40 * kNormChunk + 64}) {
    const std::vector<Vector> gradients = Gradients(3, size);
    const wire::Membership membership = Host(cluster, ++generation, {{0, 2}, {1}});
    auto communicators = cluster.ConnectAll(membership);
    std::vector<Outcome> outcomes(2, Outcome(size, 2));
    ExpectAllOk(OnAll(communicators, [&](Communicator& me) {
      return Reduce(me, membership, gradients, reducers[me.rank()], outcomes[me.rank()]);
    }));
    EXPECT_TRUE(SameBits(outcomes[0].reduced, Reference(gradients, size).reduced));
    EXPECT_TRUE(SameBits(outcomes[1].reduced, outcomes[0].reduced));
  }
}

TEST(OrderedReducerTest, AMemberThatIsAloneMayReduceInPlace) {
  const int64_t size = 3 * kNormChunk + 4160;
  std::vector<Vector> gradients = Gradients(3, size);
  const Outcome expected = Reference(gradients, size);
  Cluster cluster(1);
  const wire::Membership membership = Host(cluster, 1, {{0, 1, 2}});
  auto communicators = cluster.ConnectAll(membership);
  const std::vector<LogicalGradient> local{{0, gradients[0]}, {1, gradients[1]}, {2, gradients[2]}};
  std::vector<double> norms(NormChunks(size));
  OrderedReducer reducer;
  ASSERT_TRUE(reducer.Reduce(*communicators[0], membership,
                             {.local = local, .scale = 1.0F / 37, .vote = {}},
                             {.reduced = gradients[0], .chunk_norms = norms, .votes = {}}));
  EXPECT_TRUE(SameBits(gradients[0], expected.reduced));
  EXPECT_TRUE(SameBits(norms, expected.norms));
}

TEST(OrderedReducerTest, AnInterruptedReductionIsRetriedByTheSurvivorsWithTheSameBits) {
  const int64_t size = 60 * kNormChunk;
  const std::vector<Vector> gradients = Gradients(3, size);
  const std::vector<Vector> before = gradients;
  Cluster cluster(3);
  const wire::Membership all = Host(cluster, 1, {{0}, {1}, {2}});
  auto communicators = cluster.ConnectAll(all);
  std::vector<OrderedReducer> reducers(3);
  std::vector<Outcome> outcomes(3, Outcome(size, 3));

  // Member 2 gives up in the middle of the first attempt.
  const auto failed = OnAll(communicators, [&](Communicator& me) -> Status {
    if (me.rank() == 2) {
      std::vector<std::byte> some(1000);
      const ReceivePiece receive{0, some};
      (void)me.Exchange({}, {&receive, 1});
      return {};
    }
    return Reduce(me, all, gradients, reducers[me.rank()], outcomes[me.rank()]);
  });
  EXPECT_TRUE(CodeOf(failed[0]).has_value());
  EXPECT_TRUE(CodeOf(failed[1]).has_value());

  const wire::Membership survivors = Host(cluster, 2, {{0, 2}, {1}});
  auto regrouped = cluster.ConnectAll(survivors);
  std::vector<Outcome> retried(2, Outcome(size, 2));
  ExpectAllOk(OnAll(regrouped, [&](Communicator& me) {
    return Reduce(me, survivors, gradients, reducers[me.rank()], retried[me.rank()]);
  }));

  EXPECT_EQ(gradients, before) << "the inputs survive";
  EXPECT_TRUE(SameBits(retried[0].reduced, Reference(gradients, size).reduced));
  EXPECT_TRUE(SameBits(retried[1].reduced, retried[0].reduced));
}

TEST(OrderedReducerTest, AMembershipThatDoesNotFitIsAnError) {
  const std::vector<Vector> gradients = Gradients(3, 64);
  Cluster cluster(2);
  auto communicators = cluster.ConnectAll(Host(cluster, 1, {{0}, {1}}));
  OrderedReducer reducer;
  Outcome outcome(64, 2);
  const auto reduce = [&](const Hosting& hosting) {
    return Reduce(*communicators[0], Host(cluster, 1, hosting), gradients, reducer, outcome);
  };

  EXPECT_THAT(MessageOf(reduce({{0}})), ::testing::HasSubstr("not the communicator's"));
  EXPECT_THAT(MessageOf(reduce({{0}, {2}})), ::testing::HasSubstr("exactly once"));
  EXPECT_THAT(MessageOf(reduce({{0}, {0, 1}})), ::testing::HasSubstr("exactly once"));
  EXPECT_THAT(MessageOf(reduce({{}, {}})), ::testing::HasSubstr("no logical rank"));
  Outcome other(128, 2);
  EXPECT_THAT(
      MessageOf(Reduce(*communicators[0], Host(cluster, 1, {{0}, {1}}), gradients, reducer, other)),
      ::testing::HasSubstr("logical rank 0 is missing or of another size"));
}

TEST(OrderedReducerTest, AnAbortedSingleMemberDoesNotReduce) {
  const std::vector<Vector> gradients = Gradients(1, 64);
  Cluster cluster(1);
  const wire::Membership membership = Host(cluster, 1, {{0}});
  auto communicators = cluster.ConnectAll(membership);
  communicators[0]->Abort();
  OrderedReducer reducer;
  Outcome outcome(64, 1);

  EXPECT_EQ(CodeOf(Reduce(*communicators[0], membership, gradients, reducer, outcome)),
            ErrorCode::kAborted);
}

TEST(GlobalNormTest, IsTheRootOfTheSum) {
  const std::vector<double> norms = {9, 16};
  EXPECT_EQ(GlobalNorm(norms), 5);
  EXPECT_EQ(GlobalNorm({}), 0);
}

}  // namespace
}  // namespace everstep
