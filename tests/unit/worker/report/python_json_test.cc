#include "worker/report/python_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

namespace everstep {
namespace {

// Left: what Python's repr prints.
TEST(PythonJsonTest, FloatsAreReprs) {
  const std::vector<std::pair<std::string, double>> cases{
      {"0.0", 0.0},
      {"-0.0", -0.0},
      {"1.0", 1},
      {"0.1", 0.1},
      {"-2.5", -2.5},
      {"0.0001", 1e-4},
      {"1e-05", 1e-5},
      {"2.4471741852423235e-05", 2.4471741852423235e-05},
      {"0.0009000000000000001", 0.0009000000000000001},
      {"5429630976.0", 5429630976.0},
      {"1234567890123456.0", 1234567890123456.0},
      {"9007199254740994.0", 9007199254740994.0},
      {"1e+16", 1e16},
      {"1.5e+300", 1.5e300},
      {"5e-324", std::numeric_limits<double>::denorm_min()},
      {"NaN", std::numeric_limits<double>::quiet_NaN()},
      {"Infinity", std::numeric_limits<double>::infinity()},
      {"-Infinity", -std::numeric_limits<double>::infinity()}};
  for (const auto& [text, value] : cases) {
    EXPECT_EQ(PythonFloat(value), text);
  }
}

TEST(PythonJsonTest, RoundIsExact) {
  EXPECT_EQ(PythonRound(2.675, 2), 2.67);  // 2.675 lies below
  EXPECT_EQ(PythonRound(0.125, 2), 0.12);  // a tie goes to the even digit
  EXPECT_EQ(PythonRound(8.333333333333332, 2), 8.33);
  EXPECT_EQ(PythonRound(100.0, 2), 100.0);
  EXPECT_EQ(PythonRound(1e300, 3), 1e300);
}

TEST(PythonJsonTest, OneLine) {
  OrderedJson json;
  json["b"] = 1;
  json["a"] = {1.0, nullptr, true, "z\u00fc\n"};
  json["c"] = OrderedJson::object();
  EXPECT_EQ(PythonJson(json), "{\"b\": 1, \"a\": [1.0, null, true, \"z\\u00fc\\n\"], \"c\": {}}");
}

TEST(PythonJsonTest, Indented) {
  OrderedJson json;
  json["a"] = {1, 2};
  json["b"] = OrderedJson::array();
  EXPECT_EQ(PythonJson(json, 2), "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": []\n}");
}

}  // namespace
}  // namespace everstep
