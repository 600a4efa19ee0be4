#include "worker/model/projection.h"

#include "worker/kernels/gemm.h"
#include "worker/kernels/norm.h"
#include "worker/kernels/tensor_rows.h"

namespace everstep {
namespace {

using torch::Tensor;

// rows(m) = rows(m) * factors, elementwise per column; plus `offset` unless that is null.
void ScaleColumns(const Tensor& from, const float* factors, const float* offset, Tensor& to) {
  const int64_t columns = from.size(1);
  const RowReader reader(from, columns);
  const RowWriter writer(to, columns);
  ForRows(from.size(0), columns, [&](int64_t row) {
    const float* x = reader.Row(row, ScratchRow(0, columns));
    float* y = writer.Row(row, ScratchRow(1, columns));
    for (int64_t i = 0; i < columns; ++i) {
      y[i] =
          x[i] * (factors == nullptr ? 1.0f : factors[i]) + (offset == nullptr ? 0.0f : offset[i]);
    }
    writer.Finish(row, y);
  });
}

// Zeroes each element with the given probability and scales the others up; adds the result to `to`
// with `accumulate`. The same elements every time for the same seed.
void Dropout(const Tensor& from, double probability, uint64_t seed, Tensor& to, bool accumulate) {
  const int64_t columns = from.size(1);
  const auto limit = static_cast<float>(probability);
  const float keep = 1.0f / (1.0f - limit);
  const RowReader reader(from, columns), old(to, columns);
  const RowWriter writer(to, columns);
  ForRows(from.size(0), columns, [&](int64_t row) {
    const float* x = reader.Row(row, ScratchRow(0, columns));
    const float* before = accumulate ? old.Row(row, ScratchRow(2, columns)) : nullptr;
    float* y = writer.Row(row, ScratchRow(1, columns));
    const auto first = static_cast<uint64_t>(row * columns);
    for (int64_t i = 0; i < columns; ++i) {
      const bool kept = DrawUniform(seed, first + static_cast<uint64_t>(i)) >= limit;
      y[i] = (kept ? x[i] * keep : 0.0f) + (before == nullptr ? 0.0f : before[i]);
    }
    writer.Finish(row, y);
  });
}

bool DropsOut(const LoraPath& lora, const PassContext& pass) {
  return pass.training && lora.dropout > 0;
}

// The side path's input.
Tensor SideInput(const Tensor& x, const LoraPath& lora, const PassContext& pass, int64_t place) {
  if (!DropsOut(lora, pass)) return x;
  Tensor dropped = pass.arena.Take(x.sizes(), x.scalar_type());
  Dropout(x, lora.dropout, DrawSeed(pass.key, place), dropped, /*accumulate=*/false);
  return dropped;
}

// magnitude / ||W + scaling B A||, [out].
Tensor RowFactors(const LoraPath& lora, Arena& arena) {
  Tensor factors = arena.Take({lora.row_norm.numel()});
  at::div_out(factors, lora.magnitude.value, lora.row_norm);
  return factors;
}

}  // namespace

void Projection::Refresh(torch::ScalarType compute_type) {
  weight.Refresh(compute_type);
  bias.Refresh(torch::kFloat32);
  if (lora == nullptr) return;
  lora->a.Refresh(compute_type);
  lora->b.Refresh(compute_type);
  if (!lora->magnitude.defined()) return;
  lora->row_norm = weight.value.to(torch::kFloat32, /*non_blocking=*/false, /*copy=*/true)
                       .addmm_(lora->b.value, lora->a.value, /*beta=*/1, /*alpha=*/lora->scaling)
                       .norm(2, /*dim=*/1);
}

void Projection::Forward(const Tensor& x, Tensor& y, const PassContext& pass, int64_t place) const {
  Gemm(y, Plain(x), Transposed(weight.compute), pass.arena);
  const float* factors = nullptr;
  const ArenaScope scope(pass.arena);
  Tensor held;
  if (lora != nullptr) {
    SidePath(x, y, pass, place);
    if (lora->magnitude.defined()) {
      held = RowFactors(*lora, pass.arena);
      factors = held.const_data_ptr<float>();
    }
  }
  const float* offset = bias.defined() ? bias.compute.const_data_ptr<float>() : nullptr;
  if (factors != nullptr || offset != nullptr) ScaleColumns(y, factors, offset, y);
}

void Projection::SidePath(const Tensor& x, Tensor& y, const PassContext& pass,
                          int64_t place) const {
  const ArenaScope scope(pass.arena);
  const Tensor input = SideInput(x, *lora, pass, place);
  Tensor low = pass.Activation(lora->a.value.size(0));
  Gemm(low, Plain(input), Transposed(lora->a.compute), pass.arena);
  Gemm(y, Plain(low), Transposed(lora->b.compute), pass.arena, /*accumulate=*/true,
       static_cast<float>(lora->scaling));
}

void Projection::Backward(const Tensor& x, const Tensor& dy, Tensor* dx, bool accumulate,
                          const PassContext& pass, int64_t place) {
  const ArenaScope scope(pass.arena);
  if (bias.defined() && bias.trainable) AddColumnSums(dy, bias.gradient, pass.arena);
  const bool scaled = lora != nullptr && lora->magnitude.defined();
  const Tensor d_product = scaled ? ScaleRows(x, dy, pass, place) : dy;
  if (weight.trainable) {
    Gemm(weight.gradient, Transposed(d_product), Plain(x), pass.arena, /*accumulate=*/true);
  }
  if (dx != nullptr) {
    Gemm(*dx, Plain(d_product), Plain(weight.compute), pass.arena, accumulate);
  }
  if (lora != nullptr) SidePathBackward(x, d_product, dx, pass, place);
}

void Projection::SidePathBackward(const Tensor& x, const Tensor& dy, Tensor* dx,
                                  const PassContext& pass, int64_t place) {
  const ArenaScope scope(pass.arena);
  const auto scaling = static_cast<float>(lora->scaling);
  const int64_t rank = lora->a.value.size(0);
  const Tensor input = SideInput(x, *lora, pass, place);
  Tensor low = pass.Activation(rank), d_low = pass.Activation(rank);
  Gemm(low, Plain(input), Transposed(lora->a.compute), pass.arena);
  Gemm(lora->b.gradient, Transposed(dy), Plain(low), pass.arena, /*accumulate=*/true, scaling);
  Gemm(d_low, Plain(dy), Plain(lora->b.compute), pass.arena, /*accumulate=*/false, scaling);
  Gemm(lora->a.gradient, Transposed(d_low), Plain(input), pass.arena, /*accumulate=*/true);
  if (dx == nullptr) return;
  if (!DropsOut(*lora, pass)) {
    Gemm(*dx, Plain(d_low), Plain(lora->a.compute), pass.arena, /*accumulate=*/true);
    return;
  }
  Tensor d_input = pass.arena.Take(x.sizes());
  Gemm(d_input, Plain(d_low), Plain(lora->a.compute), pass.arena);
  Dropout(d_input, lora->dropout, DrawSeed(pass.key, place), *dx, /*accumulate=*/true);
}

// DoRA: the gradient of the unscaled product, and that of the magnitudes:
// d magnitude[i] = sum over tokens of dy[i] * product[i] / norm[i].
Tensor Projection::ScaleRows(const Tensor& x, const Tensor& dy, const PassContext& pass,
                             int64_t place) {
  Tensor scaled = pass.arena.Take(dy.sizes(), dy.scalar_type());
  const ArenaScope scope(pass.arena);
  Tensor product = pass.arena.Take(dy.sizes(), dy.scalar_type());
  Gemm(product, Plain(x), Transposed(weight.compute), pass.arena);
  SidePath(x, product, pass, place);
  product.mul_(dy);
  Tensor sums = pass.arena.Take({dy.size(1)});
  sums.zero_();
  AddColumnSums(product, sums, pass.arena);
  lora->magnitude.gradient.add_(sums.div_(lora->row_norm));
  const Tensor factors = RowFactors(*lora, pass.arena);
  ScaleColumns(dy, factors.const_data_ptr<float>(), nullptr, scaled);
  return scaled;
}

}  // namespace everstep
