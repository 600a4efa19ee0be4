#include "worker/parallel/ordered_sum.h"

#include <algorithm>
#include <cstring>

namespace everstep {
namespace {

// Small enough that `out` stays in the first-level cache while the pieces are added.
constexpr int64_t kBlock = 2048;

void Add(float* __restrict out, const float* __restrict piece, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] += piece[i];
}

void Scale(float* out, float scale, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] *= scale;
}

struct NormLanes {
  double lane[kNormLanes] = {};

  // Of a range that begins at a multiple of kNormLanes.
  void Add(const float* values, int64_t count) {
    const int64_t whole = count / kNormLanes * kNormLanes;
    for (int64_t i = 0; i < whole; i += kNormLanes) {
      for (int j = 0; j < kNormLanes; ++j) {
        const double value = values[i + j];
        lane[j] += value * value;
      }
    }
    for (int64_t i = whole; i < count; ++i) {
      const double value = values[i];
      lane[i - whole] += value * value;
    }
  }
  double Total() const {
    double sums[kNormLanes];
    std::copy_n(lane, kNormLanes, sums);
    for (int half = kNormLanes / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
    }
    return sums[0];
  }
};

}  // namespace

double OrderedSum(std::span<const float* const> pieces, int64_t count, float scale, float* out) {
  static_assert(kBlock % kNormLanes == 0);
  NormLanes norm;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t length = std::min(kBlock, count - begin);
    if (out != pieces[0]) {
      std::memcpy(out + begin, pieces[0] + begin, static_cast<size_t>(length) * sizeof(float));
    }
    for (const float* piece : pieces.subspan(1)) Add(out + begin, piece + begin, length);
    Scale(out + begin, scale, length);
    norm.Add(out + begin, length);
  }
  return norm.Total();
}

double SumOfSquares(const float* values, int64_t count) {
  NormLanes norm;
  norm.Add(values, count);
  return norm.Total();
}

}  // namespace everstep
