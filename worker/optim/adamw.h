// AdamW with decoupled weight decay (Loshchilov & Hutter, "Decoupled Weight Decay Regularization",
// algorithm 2) over ranges of flat fp32 vectors.
//
// Elementwise, and compiled without contraction of multiply and add: an element's new value does
// not depend on where a range begins or ends, so any split over threads or ranks gives the same
// bits.
#ifndef EVERSTEP_WORKER_OPTIM_ADAMW_H_
#define EVERSTEP_WORKER_OPTIM_ADAMW_H_

#include <cstdint>
#include <span>

namespace everstep {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

// What is the same for all elements of one update of one parameter.
struct AdamWStep {
  int64_t step = 1;            // number of this update, from 1: bias correction
  double learning_rate = 0;    // with the parameter's own scale
  double weight_decay = 0;     // 0 for parameters that do not decay
  float gradient_scale = 1.0;  // clipping coefficient, multiplied into the gradient first
};

// The four spans have the same length.
struct AdamWRange {
  std::span<float> parameters;
  std::span<const float> gradient;
  std::span<float> first_moment;
  std::span<float> second_moment;
};

// Updates parameters and moments in place.
void ApplyAdamW(const AdamWOptions& options, const AdamWStep& step, const AdamWRange& range);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_OPTIM_ADAMW_H_
