// OmegaConf's ${...} inside the values of a training file.
#ifndef EVERSTEP_WORKER_CONFIG_INTERPOLATION_H_
#define EVERSTEP_WORKER_CONFIG_INTERPOLATION_H_

#include "worker/config/training_file.h"

namespace everstep {

// A value may refer to a key that refers to another; more than this many levels is a circle.
inline constexpr int kMaxInterpolationDepth = 8;

// Replaces ${oc.env:NAME}, ${oc.env:NAME,default} and ${key} in every text of `file`, nested ones
// too. What cannot be resolved is added to file->problems.
void Interpolate(TrainingFile* file, const EnvironmentLookup& environment);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CONFIG_INTERPOLATION_H_
