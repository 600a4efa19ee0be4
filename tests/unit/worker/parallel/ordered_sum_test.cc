#include "worker/parallel/ordered_sum.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace everstep {
namespace {

std::vector<float> Random(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(size);
  // Of very different sizes, so that every change of order changes bits.
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(random()) - 2e9F, static_cast<int>(random() % 40) - 60);
  }
  return values;
}

TEST(OrderedSumTest, AddsInOrderForEveryLength) {
  for (const int64_t size : {1, 2, 15, 16, 17, 2047, 2048, 2049, 5000, 16384}) {
    std::vector<std::vector<float>> inputs;
    std::vector<const float*> pieces;
    for (uint32_t l = 0; l < 5; ++l) inputs.push_back(Random(size, l));
    for (const auto& input : inputs) pieces.push_back(input.data());
    std::vector<float> out(size);

    const double norm = OrderedSum(pieces, size, 0.3F, out.data());

    std::array<double, kNormLanes> lanes{};
    for (int64_t i = 0; i < size; ++i) {
      volatile float sum = inputs[0][i];
      for (int l = 1; l < 5; ++l) sum = sum + inputs[l][i];
      sum = sum * 0.3F;
      ASSERT_EQ(out[i], sum) << "element " << i << " of " << size;
      volatile double square = static_cast<double>(sum) * static_cast<double>(sum);
      lanes[i % kNormLanes] += square;
    }
    double expected = 0;
    for (const double lane : lanes) expected += lane;
    EXPECT_NEAR(norm, expected, 1e-12 * expected);
    EXPECT_EQ(norm, SumOfSquares(out.data(), size));
  }
}

TEST(OrderedSumTest, OrderMatters) {
  // The test's inputs do tell orders apart.
  const std::vector<float> a = Random(1000, 1);
  const std::vector<float> b = Random(1000, 2);
  const std::vector<float> c = Random(1000, 3);
  std::vector<float> forward(1000);
  std::vector<float> backward(1000);
  const std::array<const float*, 3> abc = {a.data(), b.data(), c.data()};
  const std::array<const float*, 3> cba = {c.data(), b.data(), a.data()};
  OrderedSum(abc, 1000, 1, forward.data());
  OrderedSum(cba, 1000, 1, backward.data());
  EXPECT_NE(forward, backward);
}

TEST(OrderedSumTest, NotANumberIsNotLost) {
  std::vector<float> values(100, 1.0F);
  values[57] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> out(100);
  const float* piece = values.data();
  EXPECT_TRUE(std::isnan(OrderedSum({&piece, 1}, 100, 1, out.data())));
}

}  // namespace
}  // namespace everstep
