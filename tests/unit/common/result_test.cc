// Results, checks and clocks: what everything else stands on.
#include "common/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>

#include "common/check.h"
#include "common/clock.h"

namespace everstep {
namespace {

Result<std::unique_ptr<int>> Half(int number) {
  if (number % 2 != 0) return InvalidArgument(std::to_string(number) + ": is odd");
  return std::make_unique<int>(number / 2);
}

Status MustBeEven(int number, int* asked) {
  ++*asked;
  RETURN_IF_ERROR(Half(number));
  return {};
}

Result<int> Quarter(int number) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> half, Half(number));
  ASSIGN_OR_RETURN(std::unique_ptr<int> quarter, Half(*half));
  return *quarter;
}

TEST(ResultTest, AValueIsMovedOut) {
  EXPECT_EQ(Quarter(12).value_or(-1), 3);
  int asked = 0;
  EXPECT_TRUE(MustBeEven(2, &asked).has_value());
  EXPECT_EQ(asked, 1);
}

TEST(ResultTest, TheFirstErrorIsReturnedAsItIs) {
  EXPECT_EQ(Quarter(7).error().message, "7: is odd");
  EXPECT_EQ(Quarter(6).error().message, "3: is odd");
  EXPECT_EQ(Quarter(6).error().code, ErrorCode::kInvalidArgument);
  int asked = 0;
  EXPECT_EQ(MustBeEven(3, &asked).error().message, "3: is odd");
  EXPECT_EQ(asked, 1);
}

TEST(ResultTest, EveryMakerHasItsCode) {
  const auto code = [](tl::unexpected<Error> error) { return std::move(error).value().code; };
  EXPECT_EQ(code(InvalidArgument("")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(NotFound("")), ErrorCode::kNotFound);
  EXPECT_EQ(code(DataLoss("")), ErrorCode::kDataLoss);
  EXPECT_EQ(code(Unavailable("")), ErrorCode::kUnavailable);
  EXPECT_EQ(code(Internal("")), ErrorCode::kInternal);
  EXPECT_EQ(code(MakeError(ErrorCode::kConflict, "")), ErrorCode::kConflict);
}

TEST(ResultTest, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  const int count = static_cast<int>(ErrorCode::kInternal) + 1;
  for (int code = 0; code < count; ++code)
    names.insert(ErrorCodeName(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), static_cast<size_t>(count));
  EXPECT_FALSE(names.contains("Unknown"));
  EXPECT_EQ(ErrorCodeName(ErrorCode::kDataLoss), "DataLoss");
}

TEST(ResultTest, ErrnoIsInWords) { EXPECT_EQ(ErrnoText(ENOENT), "No such file or directory"); }

TEST(CheckTest, WhatHoldsIsLookedAtOnce) {
  int looked = 0;
  EVERSTEP_CHECK(++looked == 1);
  EXPECT_EQ(looked, 1);
}

TEST(CheckDeathTest, WhatDoesNotHoldIsNamedWithItsPlace) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(EVERSTEP_CHECK(2 + 2 == 5), "result_test\\.cc:[0-9]+: check failed: 2 \\+ 2 == 5");
}

TEST(ClockTest, AManualClockMovesBothTimesWhenTold) {
  ManualClock clock;
  const TimePoint start = clock.Now();
  const WallTime wall_start = clock.WallNow();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(std::chrono::milliseconds(1500));
  EXPECT_EQ(clock.Now() - start, std::chrono::milliseconds(1500));
  EXPECT_EQ(clock.WallNow() - wall_start, std::chrono::milliseconds(1500));
  EXPECT_EQ(Seconds(clock.Now() - start), 1.5);
  EXPECT_EQ(Milliseconds(clock.Now() - start), 1500);
}

TEST(ClockTest, TimeIsWrittenAsKubernetesDoes) {
  EXPECT_EQ(FormatTime(WallTime()), "1970-01-01T00:00:00Z");
  EXPECT_EQ(FormatTime(WallTime(std::chrono::seconds(1796040000))), "2026-11-30T12:00:00Z");
  EXPECT_EQ(FormatTime(WallTime(std::chrono::milliseconds(951868799999))), "2000-02-29T23:59:59Z");
}

}  // namespace
}  // namespace everstep
