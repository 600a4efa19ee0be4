// One optimizer update of the whole flat vector.
#ifndef EVERSTEP_WORKER_PARALLEL_APPLY_UPDATE_H_
#define EVERSTEP_WORKER_PARALLEL_APPLY_UPDATE_H_

#include <cstdint>
#include <span>

#include "worker/config/train_config.h"
#include "worker/parallel/training_state.h"

namespace everstep {

struct Update {
  std::span<const float> gradient;  // [layout.size], reduced
  double gradient_norm = 0;         // for clipping
  double learning_rate = 0;
  int64_t number = 1;  // of this update, from 1
};

// Clips and applies AdamW to parameters and moments in place, split over the threads (elementwise:
// the split does not show in the result).
void ApplyUpdate(const TrainingArguments& arguments, const Update& update, TrainingState& state);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_PARALLEL_APPLY_UPDATE_H_
