// The hand-written attention beside LibTorch's own operations and their autograd.
#include "worker/kernels/attention.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <vector>

namespace everstep {
namespace {

using torch::Tensor;

struct Case {
  std::vector<int64_t> lengths;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t window;
};

// One sequence, [length, heads * head_dim]; plain softmax of masked scores.
Tensor ReferenceAttention(const Case& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t length = q.size(0);
  const auto heads = [&](const Tensor& t, int64_t count) {
    const Tensor split = t.view({length, count, c.head_dim}).transpose(0, 1);
    return split.repeat_interleave(c.heads / count, 0);
  };
  const Tensor index = torch::arange(length);
  Tensor hidden = index.unsqueeze(0) > index.unsqueeze(1);
  if (c.window > 0) {
    hidden = hidden.logical_or(index.unsqueeze(0) <= index.unsqueeze(1) - c.window);
  }
  Tensor scores = at::matmul(heads(q, c.heads), heads(k, c.kv_heads).transpose(1, 2)) /
                  std::sqrt(static_cast<double>(c.head_dim));
  scores = scores.masked_fill(hidden, -std::numeric_limits<float>::infinity());
  return at::matmul(scores.softmax(-1), heads(v, c.kv_heads))
      .transpose(0, 1)
      .reshape({length, c.heads * c.head_dim});
}

class AttentionTest : public testing::TestWithParam<Case> {};

TEST_P(AttentionTest, OutputAndGradientsAreThoseOfPlainSoftmax) {
  const Case& c = GetParam();
  torch::manual_seed(7);
  std::vector<Sequence> sequences;
  int64_t tokens = 0;
  for (int64_t length : c.lengths) {
    sequences.push_back({tokens, length});
    tokens += length;
  }
  const int64_t q_columns = c.heads * c.head_dim, kv_columns = c.kv_heads * c.head_dim;
  const auto variable = [&](int64_t columns) {
    return torch::randn({tokens, columns}).requires_grad_(true);
  };
  const Tensor q = variable(q_columns), k = variable(kv_columns), v = variable(kv_columns);
  const Tensor d_out = torch::randn({tokens, q_columns});
  std::vector<Tensor> parts;
  for (const Sequence& s : sequences) {
    parts.push_back(ReferenceAttention(c, q.narrow(0, s.begin, s.length),
                                       k.narrow(0, s.begin, s.length),
                                       v.narrow(0, s.begin, s.length)));
  }
  const Tensor expected = torch::cat(parts);
  expected.backward(d_out);

  const AttentionShape shape{.sequences = sequences,
                             .tokens = tokens,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .head_dim = c.head_dim,
                             .window = c.window};
  Tensor out = torch::empty({tokens, q_columns}), log_sums = torch::empty({c.heads, tokens});
  AttentionForward(shape,
                   {q.const_data_ptr<float>(), k.const_data_ptr<float>(), v.const_data_ptr<float>(),
                    out.mutable_data_ptr<float>(), log_sums.mutable_data_ptr<float>()});
  Tensor d_q = torch::empty_like(q), d_k = torch::empty_like(k), d_v = torch::empty_like(v);
  AttentionBackward(
      shape, {q.const_data_ptr<float>(), k.const_data_ptr<float>(), v.const_data_ptr<float>(),
              out.const_data_ptr<float>(), log_sums.const_data_ptr<float>(),
              d_out.const_data_ptr<float>(), d_q.mutable_data_ptr<float>(),
              d_k.mutable_data_ptr<float>(), d_v.mutable_data_ptr<float>()});

  EXPECT_TRUE(torch::allclose(out, expected, 1e-5, 1e-5));
  EXPECT_TRUE(torch::allclose(d_q, q.grad(), 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(d_k, k.grad(), 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(d_v, v.grad(), 1e-4, 1e-5));
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         testing::Values(Case{{1}, 1, 1, 8, 0}, Case{{130}, 4, 4, 16, 0},
                                         Case{{64, 1, 65, 200}, 6, 2, 16, 0},
                                         Case{{300}, 4, 2, 32, 64}, Case{{90, 150}, 4, 1, 16, 10},
                                         Case{{40}, 2, 2, 16, 500}));

}  // namespace
}  // namespace everstep
