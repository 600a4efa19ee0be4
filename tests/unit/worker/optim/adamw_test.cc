#include "worker/optim/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "common/files.h"
#include "common/json.h"
#include "tests/support/paths.h"

namespace everstep {
namespace {

struct Vectors {
  std::vector<float> parameters, gradient, first, second;

  explicit Vectors(size_t size)
      : parameters(size), gradient(size), first(size, 0.0f), second(size, 0.0f) {}

  AdamWRange Range(size_t begin, size_t end) {
    const auto cut = [&](std::vector<float>& v) {
      return std::span(v).subspan(begin, end - begin);
    };
    return {cut(parameters), cut(gradient), cut(first), cut(second)};
  }
};

Vectors RandomVectors(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.1f);
  Vectors vectors(size);
  for (size_t i = 0; i < size; ++i) {
    vectors.parameters[i] = normal(random);
    vectors.gradient[i] = normal(random);
    vectors.first[i] = normal(random);
    vectors.second[i] = normal(random) * normal(random);
    vectors.second[i] *= vectors.second[i];
  }
  return vectors;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectNear(const std::vector<float>& values, const Json& golden, const std::string& what) {
  ASSERT_EQ(values.size(), golden.size());
  double error = 0;
  double scale = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = golden[i].get<double>();
    error += (values[i] - expected) * (values[i] - expected);
    scale += expected * expected;
  }
  EXPECT_LE(std::sqrt(error), 1e-6 * std::sqrt(scale)) << what;
}

// Twelve steps of torch.optim.AdamW (fused, foreach and plain) from the same start.
TEST(AdamWTest, AgreesWithTorchOverTwelveSteps) {
  const auto text = ReadFile(GoldenPath("adamw.json"));
  ASSERT_TRUE(text) << text.error().message;
  const auto golden = ParseJson(*text, "adamw.json");
  ASSERT_TRUE(golden);
  Vectors vectors(golden->at("init").size());
  vectors.parameters = golden->at("init").get<std::vector<float>>();
  for (size_t step = 0; step < golden->at("lrs").size(); ++step) {
    vectors.gradient = golden->at("grads")[step].get<std::vector<float>>();
    ApplyAdamW({},
               {.step = static_cast<int64_t>(step) + 1,
                .learning_rate = golden->at("lrs")[step].get<double>(),
                .weight_decay = 0.1},
               vectors.Range(0, vectors.parameters.size()));
  }
  for (const Json& torch : golden->at("cases")) {
    const std::string name = torch["name"];
    ExpectNear(vectors.parameters, torch["params"], name + " parameters");
    ExpectNear(vectors.first, torch["m"], name + " first moment");
    ExpectNear(vectors.second, torch["v"], name + " second moment");
  }
}

// Ranks and threads may cut the vectors anywhere.
TEST(AdamWTest, AnySplitGivesTheSameBits) {
  constexpr size_t kSize = 1031;
  const AdamWStep step{
      .step = 3, .learning_rate = 1e-3, .weight_decay = 0.1, .gradient_scale = 0.37f};
  Vectors whole = RandomVectors(kSize, 1);
  ApplyAdamW({}, step, whole.Range(0, kSize));
  for (size_t piece : {1u, 3u, 16u, 64u, 257u}) {
    Vectors split = RandomVectors(kSize, 1);
    for (size_t begin = 0; begin < kSize; begin += piece) {
      ApplyAdamW({}, step, split.Range(begin, std::min(kSize, begin + piece)));
    }
    EXPECT_TRUE(SameBits(whole.parameters, split.parameters)) << "pieces of " << piece;
    EXPECT_TRUE(SameBits(whole.first, split.first)) << "pieces of " << piece;
    EXPECT_TRUE(SameBits(whole.second, split.second)) << "pieces of " << piece;
  }
}

TEST(AdamWTest, ClippingIsAFactorOnTheGradient) {
  constexpr size_t kSize = 100;
  Vectors clipped = RandomVectors(kSize, 2);
  Vectors scaled = RandomVectors(kSize, 2);
  for (float& g : scaled.gradient) g *= 0.25f;
  ApplyAdamW({}, {.step = 1, .learning_rate = 1e-2, .gradient_scale = 0.25f},
             clipped.Range(0, kSize));
  ApplyAdamW({}, {.step = 1, .learning_rate = 1e-2}, scaled.Range(0, kSize));
  EXPECT_TRUE(SameBits(clipped.parameters, scaled.parameters));
}

TEST(AdamWTest, PaddingStaysZeroAndDecayShrinks) {
  Vectors vectors(2);
  vectors.parameters = {0.0f, 2.0f};
  ApplyAdamW({}, {.step = 1, .learning_rate = 0.5, .weight_decay = 0.1}, vectors.Range(0, 2));
  EXPECT_EQ(vectors.parameters[0], 0.0f);
  EXPECT_FLOAT_EQ(vectors.parameters[1], 1.9f);
  ApplyAdamW({}, {.step = 2, .learning_rate = 0.5}, vectors.Range(0, 2));
  EXPECT_FLOAT_EQ(vectors.parameters[1], 1.9f) << "without decay and gradient nothing moves";
}

// A rate of zero (the first warm-up step) moves the moments only.
TEST(AdamWTest, RateZeroLeavesTheParameters) {
  Vectors vectors = RandomVectors(10, 3);
  const Vectors before = vectors;
  ApplyAdamW({}, {.step = 1, .learning_rate = 0, .weight_decay = 0.1}, vectors.Range(0, 10));
  EXPECT_TRUE(SameBits(vectors.parameters, before.parameters));
  EXPECT_FALSE(SameBits(vectors.first, before.first));
}

}  // namespace
}  // namespace everstep
