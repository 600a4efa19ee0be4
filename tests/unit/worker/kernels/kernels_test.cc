#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "worker/kernels/arena.h"
#include "worker/kernels/gemm.h"
#include "worker/kernels/norm.h"
#include "worker/kernels/row_kernels.h"

namespace everstep {
namespace {

using torch::Tensor;

TEST(RowKernelsTest, BFloat16RoundsToNearestEvenAndKeepsSpecialValues) {
  const Tensor values = torch::tensor({1.0f, 1.00390625f, 1.01171875f, -3.14159f, 1e-40f, 3.4e38f,
                                       INFINITY, -INFINITY, NAN, 65504.5f});
  std::vector<rows::BFloat16Bits> bits(10);
  rows::FromFloat(values.const_data_ptr<float>(), bits.data(), bits.size());
  std::vector<float> back(10);
  rows::ToFloat(bits.data(), back.data(), back.size());
  const Tensor expected = values.to(torch::kBFloat16).to(torch::kFloat32);
  for (int64_t i = 0; i < 10; ++i) {
    const float want = expected[i].item<float>();
    const float got = back[static_cast<size_t>(i)];
    EXPECT_TRUE(want == got || (std::isnan(want) && std::isnan(got))) << i << ": " << got;
  }
}

TEST(RowKernelsTest, SoftmaxAndItsGradientAreAutogradsForEveryLength) {
  torch::manual_seed(1);
  for (int64_t size : {1, 2, 15, 16, 17, 33, 100}) {
    const Tensor scores = (torch::randn({size}) * 5).requires_grad_(true);
    const Tensor d = torch::randn({size});
    const Tensor p = scores.softmax(0);
    p.backward(d);
    Tensor mine = scores.detach().clone();
    const float log_sum = rows::Softmax(mine.mutable_data_ptr<float>(), static_cast<size_t>(size));
    EXPECT_TRUE(torch::allclose(mine, p, 1e-5, 1e-7)) << size;
    EXPECT_NEAR(log_sum, scores.detach().logsumexp(0).item<float>(), 1e-5);
    Tensor again = scores.detach().clone(), ds = d.clone();
    const float mean = rows::Dot(mine.const_data_ptr<float>(), d.const_data_ptr<float>(),
                                 static_cast<size_t>(size));
    rows::SoftmaxBackward(again.mutable_data_ptr<float>(), ds.mutable_data_ptr<float>(), log_sum,
                          mean, 1.0f, static_cast<size_t>(size));
    EXPECT_TRUE(torch::allclose(ds, scores.grad(), 1e-4, 1e-6)) << size;
  }
}

TEST(RowKernelsTest, SwiGluAndItsGradientAreAutograds) {
  torch::manual_seed(2);
  const Tensor gate = (torch::randn({77}) * 4).requires_grad_(true);
  const Tensor up = torch::randn({77}).requires_grad_(true);
  const Tensor dy = torch::randn({77});
  const Tensor y = at::silu(gate) * up;
  y.backward(dy);
  Tensor mine = torch::empty({77}), d_gate = gate.detach().clone(), d_up = up.detach().clone();
  rows::SwiGlu(gate.const_data_ptr<float>(), up.const_data_ptr<float>(),
               mine.mutable_data_ptr<float>(), 77);
  // In place, as the decoder does it.
  rows::SwiGluBackward(dy.const_data_ptr<float>(), d_gate.const_data_ptr<float>(),
                       d_up.const_data_ptr<float>(), d_gate.mutable_data_ptr<float>(),
                       d_up.mutable_data_ptr<float>(), 77);
  EXPECT_TRUE(torch::allclose(mine, y, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(d_gate, gate.grad(), 1e-4, 1e-6));
  EXPECT_TRUE(torch::allclose(d_up, up.grad(), 1e-4, 1e-6));
}

TEST(NormTest, OutputAndGradientsAreAutograds) {
  torch::manual_seed(3);
  const Tensor x = torch::randn({100, 24}).requires_grad_(true);
  const Tensor weight = torch::randn({24}).requires_grad_(true);
  const Tensor dy = torch::randn({100, 24});
  const Tensor y = x * (x.square().mean(1, true) + 1e-5).rsqrt() * weight;
  y.backward(dy);
  Arena arena;
  Tensor mine = torch::empty({100, 24}), rstd = torch::empty({100});
  RmsNormForward(x.detach(), weight.detach(), 1e-5, mine, rstd);
  // Gradients are added to what is there.
  Tensor dx = torch::ones({100, 24}), dw = torch::ones({24});
  RmsNormBackward({dy, x.detach(), weight.detach(), rstd}, dx, dw, arena);
  EXPECT_TRUE(torch::allclose(mine, y, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(dx - 1, x.grad(), 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(dw - 1, weight.grad(), 1e-4, 1e-5));
}

TEST(NormTest, WeightGradientsDoNotDependOnTheNumberOfThreads) {
  torch::manual_seed(4);
  const Tensor m = torch::randn({333, 40});
  Arena arena;
  const auto sums_with = [&](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    Tensor sums = torch::zeros({40});
    AddColumnSums(m, sums, arena);
    at::set_num_threads(before);
    return sums;
  };
  EXPECT_TRUE(torch::equal(sums_with(1), sums_with(3)));
}

class GemmTest
    : public testing::TestWithParam<std::tuple<torch::ScalarType, torch::ScalarType, bool, bool>> {
};

TEST_P(GemmTest, ProductsAreThoseOfMatmul) {
  const auto [type, out_type, transpose_a, transpose_b] = GetParam();
  torch::manual_seed(5);
  Arena arena;
  const auto operand = [&](int64_t rows, int64_t columns, bool transposed) {
    return torch::randn(transposed ? std::vector{columns, rows} : std::vector{rows, columns})
        .to(type);
  };
  const Tensor a = operand(33, 20, transpose_a), b = operand(20, 17, transpose_b);
  const auto wide = [](const Tensor& t, bool transposed) {
    return (transposed ? t.t() : t).to(torch::kFloat32);
  };
  const Tensor product = at::matmul(wide(a, transpose_a), wide(b, transpose_b));
  const Tensor before = torch::randn({33, 17}).to(out_type);
  const double tolerance = out_type == torch::kFloat32 && type == torch::kFloat32 ? 1e-5 : 2e-2;
  Tensor c = before.clone();
  Gemm(c, {a, transpose_a}, {b, transpose_b}, arena);
  EXPECT_TRUE(torch::allclose(c.to(torch::kFloat32), product, tolerance, tolerance));
  c = before.clone();
  Gemm(c, {a, transpose_a}, {b, transpose_b}, arena, /*accumulate=*/true, 0.5f);
  EXPECT_TRUE(torch::allclose(c.to(torch::kFloat32), before.to(torch::kFloat32) + product * 0.5,
                              tolerance, tolerance));
}

INSTANTIATE_TEST_SUITE_P(Types, GemmTest,
                         testing::Combine(testing::Values(torch::kFloat32, torch::kBFloat16),
                                          testing::Values(torch::kFloat32, torch::kBFloat16),
                                          testing::Bool(), testing::Bool()));

TEST(ArenaTest, TensorsAreAlignedAndDoNotOverlap) {
  Arena arena;
  const Tensor a = arena.Take({3, 5}), b = arena.Take({7}, torch::kBFloat16);
  const Tensor c = arena.Take({int64_t{5} << 20});  // does not fit into the first block
  for (const Tensor& t : {a, b, c}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.const_data_ptr()) % 64, 0u);
  }
  Tensor(a).fill_(1);
  Tensor(b).fill_(2);
  Tensor(c).fill_(3);
  EXPECT_EQ(a.sum().item<float>(), 15);
  EXPECT_EQ(b.sum().item<float>(), 14);
}

TEST(ArenaTest, ReleasedMemoryIsTakenAgain) {
  Arena arena;
  const void* first = nullptr;
  {
    const ArenaScope scope(arena);
    first = arena.Take({100}).const_data_ptr();
  }
  EXPECT_EQ(arena.Take({50}).const_data_ptr(), first);
}

}  // namespace
}  // namespace everstep
