// Matrix products on two-dimensional tensors, into memory that exists already.
#ifndef EVERSTEP_WORKER_KERNELS_GEMM_H_
#define EVERSTEP_WORKER_KERNELS_GEMM_H_

#include <torch/torch.h>

#include <cstdint>

#include "worker/kernels/arena.h"

namespace everstep {

// A matrix of the product, transposed or not.
struct Operand {
  const torch::Tensor& tensor;
  bool transposed = false;
};
inline Operand Plain(const torch::Tensor& t) { return {t, false}; }
inline Operand Transposed(const torch::Tensor& t) { return {t, true}; }

// c = alpha * a b, or c += alpha * a b with `accumulate`. Row-major fp32 or bf16 tensors, each with
// contiguous rows. Sums are taken in fp32; a bf16 result is rounded once.
//
// bf16 products use the processor's bf16 instructions where it has them; elsewhere the operands are
// widened and multiplied in fp32, which gives the same values at fp32's speed.
void Gemm(torch::Tensor& c, Operand a, Operand b, Arena& arena, bool accumulate = false,
          float alpha = 1);

// Whether bf16 products run on bf16 instructions. When not, fp32 results are the cheaper ones.
bool HasNativeBFloat16();

// The fp32 product on raw row-major memory, for inner loops that are parallel outside:
// c[m, n] = alpha * op(a) op(b) + beta * c, with the row strides lda, ldb and ldc.
struct RawGemm {
  int64_t m, n, k;
  const float* a;
  int64_t lda;
  bool transpose_a;
  const float* b;
  int64_t ldb;
  bool transpose_b;
  float* c;
  int64_t ldc;
  float alpha;
  float beta;
};
void SgemmRaw(const RawGemm& gemm);

// Copies with conversion between fp32 and bf16, on all threads. Same number of elements,
// contiguous.
void Convert(const torch::Tensor& from, torch::Tensor& to);
// `t` itself if it is fp32, else a widened copy in the arena.
torch::Tensor AsFloat(const torch::Tensor& t, Arena& arena);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_KERNELS_GEMM_H_
