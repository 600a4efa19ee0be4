#include "operator/core/goodput.h"

#include <gtest/gtest.h>

namespace everstep {
namespace {

TEST(GoodputTest, StepsWithoutPauseAreAllOfTheTime) {
  OrderedJson status;
  CountGoodput(status, 1, 2, 1002);
  CountGoodput(status, 6, 2, 1012);
  EXPECT_EQ(status["goodput"]["productiveSeconds"], 12.0);
  EXPECT_EQ(status["goodput"]["ratio"], "1.000");
}

TEST(GoodputTest, APauseIsLost) {
  OrderedJson status;
  CountGoodput(status, 1, 1, 1001);
  CountGoodput(status, 2, 1, 1004);
  EXPECT_EQ(status["goodput"]["ratio"], "0.500");
}

TEST(GoodputTest, AStepThatIsRedoneCountsOnce) {
  OrderedJson status;
  CountGoodput(status, 10, 1, 1001);
  for (const int64_t step : {8, 9, 10}) CountGoodput(status, step, 1, 1002);
  EXPECT_EQ(status["goodput"]["productiveSeconds"], 1.0);
  CountGoodput(status, 11, 1, 1004);
  EXPECT_EQ(status["goodput"]["ratio"], "0.500");
}

TEST(GoodputTest, AJobThatGoesOnStartsWithTheStepItReports) {
  OrderedJson status;
  CountGoodput(status, 500, 1, 1000);
  EXPECT_EQ(status["goodput"]["productiveSeconds"], 1.0);
  EXPECT_EQ(status["goodput"]["ratio"], "1.000");
}

}  // namespace
}  // namespace everstep
