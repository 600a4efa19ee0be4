#include "common/strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace everstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::string_view kKeys[] = {"policy", "lora_rank", "seed", "env", "stage", "bf16"};

TEST(NearestNameTest, OneSlipIsFound) {
  EXPECT_EQ(NearestName("lora_rnak", kKeys), "lora_rank");  // swapped
  EXPECT_EQ(NearestName("lora_rank_", kKeys), "lora_rank");
  EXPECT_EQ(NearestName("lra_rank", kKeys), "lora_rank");
  EXPECT_EQ(NearestName("lora-rank", kKeys), "lora_rank");
}

TEST(NearestNameTest, SwappedNeighboursAreOneSlipAnywhereInTheName) {
  EXPECT_EQ(NearestName("polciy", kKeys), "policy");
  EXPECT_EQ(NearestName("opolicy", kKeys), "policy");
  EXPECT_EQ(NearestName("oplicy", kKeys), "policy");
  EXPECT_EQ(NearestName("policyy", kKeys), "policy");
  EXPECT_EQ(NearestName("poliyc", kKeys), "policy");
  // Two swaps are two slips, and six letters allow two.
  EXPECT_EQ(NearestName("oplciy", kKeys), "policy");
}

TEST(NearestNameTest, AShortNameMayHaveOneSlip) {
  EXPECT_EQ(NearestName("evn", kKeys), "env");
  EXPECT_EQ(NearestName("en", kKeys), "env");
  EXPECT_EQ(NearestName("bf61", kKeys), "bf16");
  EXPECT_EQ(NearestName("nve", kKeys), "");
  EXPECT_EQ(NearestName("fp32", kKeys), "");
}

TEST(NearestNameTest, NothingNearIsNothing) {
  EXPECT_EQ(NearestName("learning_rate", kKeys), "");
  EXPECT_EQ(NearestName("pilocy_x", kKeys), "");  // four slips in eight letters
  EXPECT_EQ(NearestName("", kKeys), "");
  EXPECT_EQ(NearestName("policy", {}), "");
}

TEST(NearestNameTest, TheNearestWinsAndOfEquallyNearOnesTheFirst) {
  constexpr std::string_view kSteps[] = {"save_steps", "eval_steps", "eval_step"};
  EXPECT_EQ(NearestName("eval_stepp", kSteps), "eval_steps");
  EXPECT_EQ(NearestName("eval_step", kSteps), "eval_step");
  constexpr std::string_view kBits[] = {"bit4", "bit8"};
  EXPECT_EQ(NearestName("bit", kBits), "bit4");
}

TEST(DidYouMeanTest, IsTheEndOfAMessageOrNothing) {
  EXPECT_EQ(DidYouMean("polciy", kKeys), " (did you mean 'policy'?)");
  EXPECT_EQ(DidYouMean("learning_rate", kKeys), "");
}

TEST(JoinTest, PutsTheSeparatorBetweenParts) {
  EXPECT_EQ(Join({}, ", "), "");
  EXPECT_EQ(Join({"a"}, ", "), "a");
  EXPECT_EQ(Join({"a", "b", "c"}, ", "), "a, b, c");
  EXPECT_EQ(Join({"a", "b"}, ""), "ab");
}

TEST(JoinTest, EmptyPartsCountWhereverTheyAre) {
  EXPECT_EQ(Join({"", "a"}, ","), ",a");
  EXPECT_EQ(Join({"a", "", "b"}, ","), "a,,b");
  EXPECT_EQ(Join({"", ""}, ","), ",");
}

TEST(TrimTest, TakesWhiteSpaceFromBothEnds) {
  EXPECT_EQ(Trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(Trim("a"), "a");
  EXPECT_EQ(Trim(" \n\t\r "), "");
  EXPECT_EQ(Trim(""), "");
}

TEST(SplitAndTrimTest, DropsEmptyParts) {
  EXPECT_THAT(SplitAndTrim(" a, b c ,d", ','), ElementsAre("a", "b c", "d"));
  EXPECT_THAT(SplitAndTrim(",a,, ,b,", ','), ElementsAre("a", "b"));
  EXPECT_THAT(SplitAndTrim("one", ','), ElementsAre("one"));
  EXPECT_THAT(SplitAndTrim("", ','), IsEmpty());
  EXPECT_THAT(SplitAndTrim(" , ", ','), IsEmpty());
}

TEST(FormatBytesTest, UsesTheLargestUnitThatFits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(1536 << 10), "1.5 MiB");
  EXPECT_EQ(FormatBytes(uint64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(FormatBytes(uint64_t{5} << 40), "5.0 TiB");
  EXPECT_EQ(FormatBytes(uint64_t{2} << 50), "2048.0 TiB");
}

TEST(FormatDurationTest, IsPythonsTimedelta) {
  EXPECT_EQ(FormatDuration(0), "0:00:00");
  EXPECT_EQ(FormatDuration(65), "0:01:05");
  EXPECT_EQ(FormatDuration(65.99), "0:01:05");
  EXPECT_EQ(FormatDuration(36000), "10:00:00");
  EXPECT_EQ(FormatDuration(86399), "23:59:59");
  EXPECT_EQ(FormatDuration(86400), "1 day, 0:00:00");
  EXPECT_EQ(FormatDuration(2 * 86400 + 3661), "2 days, 1:01:01");
}

TEST(FormatDurationTest, WhatIsNoDurationIsZero) {
  EXPECT_EQ(FormatDuration(-3), "0:00:00");
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::quiet_NaN()), "0:00:00");
}

}  // namespace
}  // namespace everstep
