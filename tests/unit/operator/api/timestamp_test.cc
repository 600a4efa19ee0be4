#include "operator/api/timestamp.h"

#include <gtest/gtest.h>

#include "common/clock.h"

namespace everstep {
namespace {

TEST(TimestampTest, WhatIsWrittenIsRead) {
  const WallTime time{std::chrono::seconds(1'764'500'000)};
  EXPECT_EQ(ParseTimestamp(FormatTime(time)), 1'764'500'000);
  EXPECT_EQ(ParseTimestamp("1970-01-01T00:00:00Z"), 0);
}

TEST(TimestampTest, FractionsAreCutOff) {
  EXPECT_EQ(ParseTimestamp("1970-01-01T00:01:00.123456Z"), 60);
}

TEST(TimestampTest, AnythingElseIsNoTime) {
  for (const char* text : {"", "soon", "1970-01-01", "1970-01-01T00:00:00", "1970-01-01T00:00:00Zx",
                           "1970-01-01T00:00:00+01:00", "1970-13-01T00:00:00Z"}) {
    EXPECT_FALSE(ParseTimestamp(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace everstep
