// RMSNorm over the rows of a matrix, forward and backward.
#ifndef EVERSTEP_WORKER_KERNELS_NORM_H_
#define EVERSTEP_WORKER_KERNELS_NORM_H_

#include <torch/torch.h>

#include "worker/kernels/arena.h"

namespace everstep {

// y = x * rstd * weight row by row, with rstd = 1 / sqrt(mean(x^2) + eps) kept for the backward
// pass. x and y are [rows, columns], fp32 or bf16 each; weight is [columns] and rstd [rows], fp32.
void RmsNormForward(const torch::Tensor& x, const torch::Tensor& weight, double eps,
                    torch::Tensor& y, torch::Tensor& rstd);

struct RmsNormBackwardArguments {
  const torch::Tensor& dy;      // fp32
  const torch::Tensor& x;       // as in the forward pass
  const torch::Tensor& weight;  // likewise
  const torch::Tensor& rstd;    // likewise
};
// Adds the gradient of x to dx (fp32, may not be dy), and that of the weight to `weight_gradient`
// (fp32) unless it is undefined. The order of all additions is fixed by the number of rows.
void RmsNormBackward(const RmsNormBackwardArguments& arguments, torch::Tensor& dx,
                     torch::Tensor weight_gradient, Arena& arena);

// sums[j] += sum over rows of m[i, j], in an order that the number of rows fixes. m is fp32 or
// bf16, sums fp32.
void AddColumnSums(const torch::Tensor& m, torch::Tensor sums, Arena& arena);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_KERNELS_NORM_H_
