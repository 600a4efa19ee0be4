#include "worker/parallel/vote.h"

#include <gtest/gtest.h>

namespace everstep {
namespace {

Vote VoteOf(int64_t step, std::vector<ShareVote> shares) { return {step, 0, false, shares}; }

TEST(VoteTest, SurvivesTheWire) {
  const Vote vote{7, 12, true, {{1, 0, 2.5, 100}, {3, 0, -1.25, 7}}};
  const std::vector<std::byte> bytes = EncodeVote(vote, 4);
  EXPECT_EQ(bytes.size(), VoteBytes(4));

  const auto decoded = DecodeVote(bytes);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->step, 7);
  EXPECT_EQ(decoded->pending_generation, 12u);
  EXPECT_TRUE(decoded->stop);
  ASSERT_EQ(decoded->shares.size(), 2u);
  EXPECT_EQ(decoded->shares[1].logical_rank, 3);
  EXPECT_EQ(decoded->shares[1].loss_sum, -1.25);
}

TEST(VoteTest, TruncatedBytesAreDataLoss) {
  const std::vector<std::byte> bytes = EncodeVote(VoteOf(1, {{0, 0, 1, 1}}), 1);
  EXPECT_EQ(DecodeVote(std::span(bytes).first(5)).error().code, ErrorCode::kDataLoss);
  EXPECT_EQ(DecodeVote(std::span(bytes).first(bytes.size() - 1)).error().code,
            ErrorCode::kDataLoss);
}

TEST(VoteTest, LossIsAddedInLogicalOrderWhoeverHostsIt) {
  const double big = 1e16;
  const Vote a = VoteOf(0, {{0, 0, big, 1}, {2, 0, -big, 1}});
  const Vote b = VoteOf(0, {{1, 0, 1.0, 1}});
  const auto split = CountVotes(std::vector{a, b}, 0, 3);
  const auto together =
      CountVotes(std::vector{VoteOf(0, {{2, 0, -big, 1}, {1, 0, 1.0, 1}, {0, 0, big, 1}})}, 0, 3);
  ASSERT_TRUE(split && together);
  EXPECT_EQ(split->loss_sum, (big + 1.0) - big);
  EXPECT_EQ(split->loss_sum, together->loss_sum);
  EXPECT_EQ(split->input_tokens, 3);
}

TEST(VoteTest, SwitchNeedsEverybody) {
  Vote a = VoteOf(0, {{0, 0, 1, 1}});
  Vote b = VoteOf(0, {{1, 0, 1, 1}});
  a.pending_generation = 5;
  EXPECT_EQ(CountVotes(std::vector{a, b}, 0, 2)->switch_to_generation, 0u);
  b.pending_generation = 5;
  EXPECT_EQ(CountVotes(std::vector{a, b}, 0, 2)->switch_to_generation, 5u);
}

TEST(VoteTest, OneStopIsEnough) {
  Vote a = VoteOf(0, {{0, 0, 1, 1}});
  Vote b = VoteOf(0, {{1, 0, 1, 1}});
  b.stop = true;
  EXPECT_TRUE(CountVotes(std::vector{a, b}, 0, 2)->stop);
}

TEST(VoteTest, AnotherStepOrAWrongCoverIsRefused) {
  EXPECT_FALSE(CountVotes(std::vector{VoteOf(1, {{0, 0, 1, 1}})}, 0, 1));
  EXPECT_FALSE(CountVotes(std::vector{VoteOf(0, {{0, 0, 1, 1}})}, 0, 2));
  EXPECT_FALSE(CountVotes(std::vector{VoteOf(0, {{0, 0, 1, 1}, {0, 0, 1, 1}})}, 0, 1));
  EXPECT_FALSE(CountVotes(std::vector{VoteOf(0, {{2, 0, 1, 1}})}, 0, 2));
}

}  // namespace
}  // namespace everstep
