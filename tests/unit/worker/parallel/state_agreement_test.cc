#include "worker/parallel/state_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace everstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StateHeader At(int64_t version, uint64_t workload = 1) { return {version, workload}; }

TEST(DecideStateTest, NobodyHoldsAState) {
  const auto decision = DecideState(std::vector{At(-1), At(-1)});
  ASSERT_TRUE(decision);
  EXPECT_TRUE(decision->nobody);
  EXPECT_THAT(decision->behind, IsEmpty());
}

TEST(DecideStateTest, EqualStatesNeedNothing) {
  const auto decision = DecideState(std::vector{At(9), At(9), At(9)});
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->holder, 0);
  EXPECT_THAT(decision->behind, IsEmpty());
}

TEST(DecideStateTest, TheNewestFeedsTheOthers) {
  const auto decision = DecideState(std::vector{At(8), At(-1), At(10), At(10), At(9)});
  ASSERT_TRUE(decision);
  EXPECT_FALSE(decision->nobody);
  EXPECT_EQ(decision->holder, 2);
  EXPECT_THAT(decision->behind, ElementsAre(0, 1, 4));
}

TEST(DecideStateTest, DifferentWorkloadsAreRefused) {
  const auto decision = DecideState(std::vector{At(8), At(8, 2)});
  ASSERT_FALSE(decision);
  EXPECT_EQ(decision.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(decision.error().message, HasSubstr("give all replicas the same"));
}

}  // namespace
}  // namespace everstep
