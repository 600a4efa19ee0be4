// The fused losses beside LibTorch's operations and their autograd.
#include "worker/objective/token_loss.h"

#include <gtest/gtest.h>

#include <vector>

namespace everstep {
namespace {

using torch::Tensor;

// More tokens than one chunk holds, so that chunks meet.
constexpr int64_t kTokens = 300, kHidden = 24, kVocab = 67;

struct Problem {
  Tensor hidden = torch::randn({kTokens, kHidden});
  Weight projection;
  std::vector<int64_t> labels;

  Problem() {
    projection.value = torch::randn({kVocab, kHidden});
    projection.trainable = true;
    projection.gradient = torch::zeros({kVocab, kHidden});
    projection.Refresh(torch::kFloat32);
    for (int64_t i = 0; i < kTokens; ++i) labels.push_back(i * 31 % kVocab);
  }
};

// Token losses from log-probabilities, by the definition of each kind.
Tensor Reference(const TokenLoss& loss, const Tensor& log_p, const Tensor& labels) {
  const Tensor nll = -log_p.gather(1, labels.unsqueeze(1)).squeeze(1);
  if (loss.kind == TokenLossKind::kLabelSmoothing) {
    return nll * (1 - loss.smoothing) - log_p.mean(1) * loss.smoothing;
  }
  if (loss.kind == TokenLossKind::kDynamicFineTuning) return nll * (-nll).exp().detach();
  return nll;
}

class TokenLossTest : public testing::TestWithParam<TokenLoss> {};

TEST_P(TokenLossTest, LossAndGradientsAreAutograds) {
  torch::manual_seed(1);
  Problem problem;
  const Tensor hidden = problem.hidden.clone().requires_grad_(true);
  const Tensor weight = problem.projection.value.clone().requires_grad_(true);
  const Tensor expected = Reference(GetParam(), at::matmul(hidden, weight.t()).log_softmax(-1),
                                    torch::tensor(problem.labels))
                              .sum();
  (expected * 0.5).backward();

  Arena arena;
  Tensor d_hidden = torch::empty({kTokens, kHidden});
  const double loss = ComputeTokenLoss(GetParam(), problem.hidden,
                                       {.projection = problem.projection,
                                        .labels = problem.labels,
                                        .scale = 0.5,
                                        .d_hidden = &d_hidden},
                                       arena);

  EXPECT_NEAR(loss, expected.item<double>(), 1e-3);
  EXPECT_TRUE(torch::allclose(d_hidden, hidden.grad(), 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(problem.projection.gradient, weight.grad(), 1e-4, 1e-4));
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenLossTest,
                         testing::Values(TokenLoss{},
                                         TokenLoss{TokenLossKind::kLabelSmoothing, 0.1},
                                         TokenLoss{TokenLossKind::kDynamicFineTuning, 0}));

TEST(TokenLossTest, CountsLabelsWithTheHighestLogit) {
  torch::manual_seed(2);
  Problem problem;
  const Tensor best = at::matmul(problem.hidden, problem.projection.value.t()).argmax(1);
  for (int64_t i = 0; i < kTokens; i += 2) {
    problem.labels[static_cast<size_t>(i)] = best[i].item<int64_t>();
  }
  Arena arena;
  std::vector<bool> correct;
  ComputeTokenLoss(
      {}, problem.hidden,
      {.projection = problem.projection, .labels = problem.labels, .correct = &correct}, arena);
  ASSERT_EQ(correct.size(), static_cast<size_t>(kTokens));
  for (int64_t i = 0; i < kTokens; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(correct[at], problem.labels[at] == best[i].item<int64_t>()) << i;
  }
}

TEST(TokenLossTest, WithoutGradientsAFrozenProjectionIsLeftAlone) {
  torch::manual_seed(3);
  Problem problem;
  Arena arena;
  ComputeTokenLoss({}, problem.hidden, {.projection = problem.projection, .labels = problem.labels},
                   arena);
  EXPECT_EQ(problem.projection.gradient.abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace everstep
