#include "worker/optim/clip.h"

#include <algorithm>

namespace everstep {

float ClipCoefficient(double norm, double max_norm) {
  if (max_norm <= 0) return 1.0f;
  // As torch evaluates max_norm / (norm + 1e-6) with a float32 norm: reciprocal, then product.
  const float reciprocal = 1.0f / (static_cast<float>(norm) + 1e-6f);
  return std::min(1.0f, reciprocal * static_cast<float>(max_norm));
}

}  // namespace everstep
