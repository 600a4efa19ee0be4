// The arithmetic of the reduction: a few loops whose results must have the same bits everywhere.
// Compiled without contraction of a*b+c, so that vector bodies and scalar tails agree.
#ifndef EVERSTEP_WORKER_PARALLEL_ORDERED_SUM_H_
#define EVERSTEP_WORKER_PARALLEL_ORDERED_SUM_H_

#include <cstdint>
#include <span>

namespace everstep {

// out[i] = ((p0[i] + p1[i]) + p2[i] + ...) * scale for i in [0, count), in fp32. At least one
// piece; the first may be `out` itself, no other overlaps it. Returns SumOfSquares of `out`.
double OrderedSum(std::span<const float* const> pieces, int64_t count, float scale, float* out);

// Sum of values[i]^2 in fp64, in one fixed order: kNormLanes partial sums (i modulo kNormLanes),
// then added pairwise.
inline constexpr int kNormLanes = 16;
double SumOfSquares(const float* values, int64_t count);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_PARALLEL_ORDERED_SUM_H_
