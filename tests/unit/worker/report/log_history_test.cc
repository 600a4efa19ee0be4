#include "worker/report/log_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace everstep {
namespace {

using ::testing::HasSubstr;

TEST(LogHistoryTest, ComesBackBitForBit) {
  LogHistory history;
  history.Add({.step = 1,
               .epoch = 1.0 / 3,
               .values = {{"loss", 8.150739669799805}, {"learning_rate", 0.1 + 0.2}},
               .elapsed_seconds = 0.1,
               .input_tokens = int64_t{1} << 40});
  history.Add({.step = 2,
               .epoch = 2.0 / 3,
               .values = {{"eval_loss", std::numeric_limits<double>::denorm_min()},
                          {"grad_norm", std::nextafter(1.0, 2.0)}}});
  const auto text = DumpJson(history.ToJson());
  const auto back = LogHistory::FromJson(*ParseJson(text, "history"));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, history);
}

TEST(LogHistoryTest, WhatIsNotFiniteComesBackAsNotANumber) {
  LogHistory history;
  history.Add({.step = 1, .values = {{"loss", std::numeric_limits<double>::infinity()}}});
  const auto back = LogHistory::FromJson(*ParseJson(DumpJson(history.ToJson()), "history"));
  ASSERT_TRUE(back);
  EXPECT_TRUE(std::isnan(back->records()[0].values.at("loss")));
}

TEST(LogHistoryTest, SaysWhatIsMalformed) {
  EXPECT_THAT(LogHistory::FromJson(Json::object()).error().message, HasSubstr("not an array"));
  const Json no_step = Json::array({{{"values", Json::object()}}});
  EXPECT_THAT(LogHistory::FromJson(no_step).error().message, HasSubstr("record 0: 'step'"));
  const Json bad_value = Json::array({{{"step", 1}, {"values", {{"loss", "high"}}}}});
  EXPECT_THAT(LogHistory::FromJson(bad_value).error().message, HasSubstr("'loss' is malformed"));
}

}  // namespace
}  // namespace everstep
