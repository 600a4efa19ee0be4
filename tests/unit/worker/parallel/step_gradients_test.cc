#include "worker/parallel/step_gradients.h"

#include <gtest/gtest.h>

namespace everstep {
namespace {

TEST(StepGradientsTest, AnInterruptedShareGoesOnWhereItWas) {
  StepGradients gradients(4);
  gradients.BeginStep(3);
  gradients.Accumulator(1).add_(1.0);
  gradients.AddMicroBatch(1, 2.0, 10);

  gradients.BeginStep(3);  // after a regroup the same step begins again
  EXPECT_EQ(gradients.MicroBatchesDone(1), 1);
  gradients.Accumulator(1).add_(2.0);
  gradients.AddMicroBatch(1, 0.5, 5);

  EXPECT_EQ(gradients.Gradient(1)[0], 3.0f);
  EXPECT_EQ(gradients.Share(1).loss_sum, 2.5);
  EXPECT_EQ(gradients.Share(1).input_tokens, 15);
}

TEST(StepGradientsTest, ANewStepStartsFromZero) {
  StepGradients gradients(4);
  gradients.BeginStep(0);
  gradients.Accumulator(0).fill_(5.0);
  gradients.AddMicroBatch(0, 2.0, 10);

  gradients.BeginStep(1);
  EXPECT_EQ(gradients.MicroBatchesDone(0), 0);
  gradients.Accumulator(0).add_(1.0);
  gradients.AddMicroBatch(0, 1.0, 1);
  EXPECT_EQ(gradients.Gradient(0)[3], 1.0f);
  EXPECT_EQ(gradients.Share(0).loss_sum, 1.0);
}

TEST(StepGradientsTest, SharesThatMovedAwayAreForgotten) {
  StepGradients gradients(4);
  gradients.BeginStep(0);
  for (int logical_rank : {0, 1}) {
    gradients.Accumulator(logical_rank).fill_(1.0);
    gradients.AddMicroBatch(logical_rank, 1.0, 1);
  }
  gradients.KeepOnly({1});
  EXPECT_EQ(gradients.MicroBatchesDone(0), 0);
  EXPECT_EQ(gradients.MicroBatchesDone(1), 1);
}

}  // namespace
}  // namespace everstep
