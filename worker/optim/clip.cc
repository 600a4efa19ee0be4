#include "worker/optim/clip.h"

#include <algorithm>

namespace everstep {

float ClipCoefficient(double norm, double max_norm) {
  if (max_norm <= 0) return 1.0f;
  return std::min(1.0f, static_cast<float>(max_norm) / (static_cast<float>(norm) + 1e-6f));
}

}  // namespace everstep
