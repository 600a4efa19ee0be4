#include "worker/report/loss_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace everstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

LossCurve Falling(int64_t count) {
  LossCurve curve;
  for (int64_t i = 0; i < count; ++i) {
    curve.steps.push_back(i + 1);
    curve.values.push_back(8 / std::sqrt(static_cast<double>(i + 1)) + 0.3 * ((i * 7) % 5 - 2) / 5);
  }
  return curve;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(LossPlotTest, SmoothsMoreTheLongerTheCurve) {
  // n = 2: the weight is 1.8 * (1 / (1 + exp(-0.1)) - 0.5) = 0.0449626...
  const double weight = 1.8 * (1 / (1 + std::exp(-0.1)) - 0.5);
  EXPECT_EQ(Smooth({4.0, 2.0}), (std::vector<double>{4.0, 4.0 * weight + (1 - weight) * 2.0}));
  EXPECT_TRUE(Smooth({}).empty());
}

TEST(LossPlotTest, TakesTheRecordsThatHaveTheKey) {
  LogHistory history;
  history.Add({.step = 1, .values = {{"loss", 3.0}}});
  history.Add({.step = 1, .values = {{"eval_loss", 2.0}}});
  history.Add({.step = 2, .values = {{"loss", std::numeric_limits<double>::quiet_NaN()}}});
  history.Add({.step = 3, .values = {{"loss", 1.0}}});
  const LossCurve curve = CurveOf(history, "loss");
  EXPECT_EQ(curve.steps, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(curve.values, (std::vector<double>{3.0, 1.0}));
}

TEST(LossPlotTest, DrawsBothCurvesAxesAndTitle) {
  const std::string svg = LossPlotSvg(Falling(100), "training loss of out/<x> & y", "loss");
  EXPECT_EQ(Count(svg, "<polyline"), 2u);
  EXPECT_THAT(svg, HasSubstr("training loss of out/&lt;x&gt; &amp; y</text>"));
  for (const char* label : {">step<", ">loss<", ">original<", ">smoothed<", ">20<", ">100<"}) {
    EXPECT_THAT(svg, HasSubstr(label));
  }
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(LossPlotTest, AnySizeOfCurve) {
  EXPECT_EQ(LossPlotSvg({}, "t", "loss"), "");
  for (int64_t count : {1, 2, 3, 100000}) {
    const std::string svg = LossPlotSvg(Falling(count), "t", "loss");
    EXPECT_THAT(svg, Not(HasSubstr("nan"))) << count;
    EXPECT_THAT(svg, Not(HasSubstr("inf"))) << count;
    EXPECT_LT(svg.size(), 100000u) << count << ": points that nobody can see are left out";
  }
  LossCurve flat;
  flat.steps = {1, 2, 3};
  flat.values = {2, 2, 2};
  EXPECT_EQ(Count(LossPlotSvg(flat, "t", "loss"), "<polyline"), 2u);
}

TEST(LossPlotTest, ALongDirectoryKeepsItsEnd) {
  const std::string directory = "/" + std::string(200, 'x') + "/qwen-sft";
  const std::string svg = LossPlotSvg(Falling(3), "training loss of " + directory, "loss");
  EXPECT_THAT(svg, HasSubstr(">training loss of ...xx"));
  EXPECT_THAT(svg, HasSubstr("xx/qwen-sft</text>"));
}

}  // namespace
}  // namespace everstep
