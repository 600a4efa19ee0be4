#include "worker/kernels/gemm.h"

#include "common/check.h"
#include "worker/kernels/tensor_rows.h"

// The BLAS inside LibTorch (column-major, Fortran calling convention).
extern "C" void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
                       const int* k, const float* alpha, const float* a, const int* lda,
                       const float* b, const int* ldb, const float* beta, float* c, const int* ldc);

namespace everstep {
namespace {

using torch::Tensor;

bool IsFloat(const Tensor& t) { return t.scalar_type() == torch::kFloat32; }

int64_t Rows(const Operand& o) { return o.tensor.size(o.transposed ? 1 : 0); }
int64_t Columns(const Operand& o) { return o.tensor.size(o.transposed ? 0 : 1); }

void FloatGemm(Tensor& c, const Operand& a, const Operand& b, bool accumulate, float alpha) {
  SgemmRaw({.m = c.size(0),
            .n = c.size(1),
            .k = Columns(a),
            .a = a.tensor.const_data_ptr<float>(),
            .lda = a.tensor.stride(0),
            .transpose_a = a.transposed,
            .b = b.tensor.const_data_ptr<float>(),
            .ldb = b.tensor.stride(0),
            .transpose_b = b.transposed,
            .c = c.mutable_data_ptr<float>(),
            .ldc = c.stride(0),
            .alpha = alpha,
            .beta = accumulate ? 1.0f : 0.0f});
}

// c = alpha * product or c += alpha * product, for results of one type into another.
void AddScaled(Tensor& c, const Tensor& product, bool accumulate, float alpha) {
  const int64_t columns = c.size(1);
  const RowReader reader(product, columns), old(c, columns);
  const RowWriter writer(c, columns);
  ForRows(c.size(0), columns, [&](int64_t row) {
    const float* from = reader.Row(row, ScratchRow(0, columns));
    float* to = writer.Row(row, ScratchRow(1, columns));
    const float* before = accumulate ? old.Row(row, ScratchRow(2, columns)) : nullptr;
    for (int64_t i = 0; i < columns; ++i) {
      to[i] = alpha * from[i] + (before == nullptr ? 0.0f : before[i]);
    }
    writer.Finish(row, to);
  });
}

void NativeGemm(Tensor& c, const Operand& a, const Operand& b, Arena& arena, bool accumulate,
                float alpha) {
  const Tensor left = a.transposed ? a.tensor.t() : a.tensor;
  const Tensor right = b.transposed ? b.tensor.t() : b.tensor;
  if (!IsFloat(c) && !accumulate && alpha == 1) {
    at::mm_out(c, left, right);
    return;
  }
  const ArenaScope scope(arena);
  Tensor product = arena.Take({c.size(0), c.size(1)}, torch::kBFloat16);
  at::mm_out(product, left, right);
  AddScaled(c, product, accumulate, alpha);
}

}  // namespace

bool HasNativeBFloat16() {
  static const bool native =
      __builtin_cpu_supports("avx512bf16") && at::globalContext().userEnabledMkldnn();
  return native;
}

void SgemmRaw(const RawGemm& g) {
  if (g.m == 0 || g.n == 0) return;
  // Row-major c = a b is column-major c' = b' a'.
  const char a = g.transpose_a ? 'T' : 'N', b = g.transpose_b ? 'T' : 'N';
  const int m = static_cast<int>(g.n), n = static_cast<int>(g.m), k = static_cast<int>(g.k);
  const int lda = static_cast<int>(g.lda), ldb = static_cast<int>(g.ldb);
  const int ldc = static_cast<int>(g.ldc);
  sgemm_(&b, &a, &m, &n, &k, &g.alpha, g.b, &ldb, g.a, &lda, &g.beta, g.c, &ldc);
}

void Gemm(Tensor& c, Operand a, Operand b, Arena& arena, bool accumulate, float alpha) {
  EVERSTEP_CHECK(c.size(0) == Rows(a) && c.size(1) == Columns(b) && Columns(a) == Rows(b));
  if (IsFloat(a.tensor) && IsFloat(b.tensor) && IsFloat(c)) {
    FloatGemm(c, a, b, accumulate, alpha);
    return;
  }
  if (HasNativeBFloat16() && !IsFloat(a.tensor) && !IsFloat(b.tensor)) {
    NativeGemm(c, a, b, arena, accumulate, alpha);
    return;
  }
  const ArenaScope scope(arena);
  const Tensor wide_a = AsFloat(a.tensor, arena), wide_b = AsFloat(b.tensor, arena);
  if (IsFloat(c)) {
    FloatGemm(c, {wide_a, a.transposed}, {wide_b, b.transposed}, accumulate, alpha);
    return;
  }
  Tensor wide_c = arena.Take({c.size(0), c.size(1)});
  if (accumulate) Convert(c, wide_c);
  FloatGemm(wide_c, {wide_a, a.transposed}, {wide_b, b.transposed}, accumulate, alpha);
  Convert(wide_c, c);
}

void Convert(const Tensor& from, Tensor& to) {
  constexpr int64_t kRun = 4096;
  const int64_t size = from.numel();
  EVERSTEP_CHECK(size == to.numel() && from.is_contiguous() && to.is_contiguous());
  at::parallel_for(0, (size + kRun - 1) / kRun, 4, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kRun;
    const auto count = static_cast<size_t>(std::min(size, end * kRun) - first);
    const auto bits = [first](const Tensor& t) {
      return static_cast<const rows::BFloat16Bits*>(t.const_data_ptr()) + first;
    };
    if (IsFloat(from) && IsFloat(to)) {
      rows::ToFloat(from.const_data_ptr<float>() + first, to.mutable_data_ptr<float>() + first,
                    count);
    } else if (IsFloat(from)) {
      rows::FromFloat(from.const_data_ptr<float>() + first,
                      const_cast<rows::BFloat16Bits*>(bits(to)), count);
    } else {
      rows::ToFloat(bits(from), to.mutable_data_ptr<float>() + first, count);
    }
  });
}

Tensor AsFloat(const Tensor& t, Arena& arena) {
  if (IsFloat(t)) return t;
  Tensor wide = arena.Take(t.sizes());
  Convert(t, wide);
  return wide;
}

}  // namespace everstep
