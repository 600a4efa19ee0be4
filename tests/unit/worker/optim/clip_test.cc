#include "worker/optim/clip.h"

#include <gtest/gtest.h>

#include <limits>

namespace everstep {
namespace {

// torch: (1.0 / (torch.tensor(norm) + 1e-6)).clamp(max=1.0), and so on; printed with all digits.
TEST(ClipTest, IsTorchsCoefficient) {
  EXPECT_EQ(ClipCoefficient(2.0, 1.0), 0.49999976158142090f);
  EXPECT_EQ(ClipCoefficient(7.300000190734863, 1.0), 0.13698628544807434f);
  EXPECT_EQ(ClipCoefficient(3.3333332538604736, 0.3), 0.08999998122453690f);
}

TEST(ClipTest, ShortGradientsAreLeftAlone) {
  EXPECT_EQ(ClipCoefficient(0.5, 1.0), 1.0f);
  EXPECT_EQ(ClipCoefficient(0.0, 1.0), 1.0f);
}

TEST(ClipTest, ZeroTurnsClippingOff) {
  EXPECT_EQ(ClipCoefficient(1e9, 0.0), 1.0f);
  EXPECT_EQ(ClipCoefficient(std::numeric_limits<double>::infinity(), -1.0), 1.0f);
}

}  // namespace
}  // namespace everstep
