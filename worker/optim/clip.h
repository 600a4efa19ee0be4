// Gradient clipping by global norm (Pascanu et al., 2013), with torch's clip_grad_norm_ rule.
#ifndef EVERSTEP_WORKER_OPTIM_CLIP_H_
#define EVERSTEP_WORKER_OPTIM_CLIP_H_

namespace everstep {

// What the gradient is multiplied with: min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0 or
// less (no clipping).
float ClipCoefficient(double norm, double max_norm);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_OPTIM_CLIP_H_
