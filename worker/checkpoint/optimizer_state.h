// The optimizer's vectors as named tensors, one per trained parameter ("exp_avg/<name>",
// "exp_avg_sq/<name>", "parameter/<name>"), so that a checkpoint does not depend on how a run lays
// out or shards its flat vectors.
#ifndef EVERSTEP_WORKER_CHECKPOINT_OPTIMIZER_STATE_H_
#define EVERSTEP_WORKER_CHECKPOINT_OPTIMIZER_STATE_H_

#include <span>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/parallel/layout.h"

namespace everstep {

// Flat vectors of layout.size elements, or empty ones for what is not stored or not wanted.
struct OptimizerVectors {
  std::span<const float> parameters;
  std::span<const float> first_moment;
  std::span<const float> second_moment;
};
struct MutableOptimizerVectors {
  std::span<float> parameters;
  std::span<float> first_moment;
  std::span<float> second_moment;
};

// Views into `vectors`, entry by entry without the padding.
std::vector<TensorView> OptimizerTensors(const FlatLayout& layout, const OptimizerVectors& vectors);

// Fills the vectors that are not empty from `file`; padding becomes zero. Every element comes from
// exactly one tensor: kFailedPrecondition, naming the tensor, when one is missing, has another
// shape or dtype, or belongs to no parameter of the layout. Nothing is written then.
Status ReadOptimizerTensors(const SafetensorsFile& file, const FlatLayout& layout,
                            const MutableOptimizerVectors& vectors);

// Names and shapes, for the manifest.
Json LayoutJson(const FlatLayout& layout);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_OPTIMIZER_STATE_H_
