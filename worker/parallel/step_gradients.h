// The local gradient sums of the step in progress, one flat vector per hosted logical rank.
//
// They are the reason why a death costs only the dead rank's share: the reduction reads them and
// writes elsewhere, so after an interruption they are still whole and are reduced again over the
// new membership. Only what nobody holds is computed again.
#ifndef EVERSTEP_WORKER_PARALLEL_STEP_GRADIENTS_H_
#define EVERSTEP_WORKER_PARALLEL_STEP_GRADIENTS_H_

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace everstep {

// What a logical rank contributes to a step besides its gradient.
struct ShareResult {
  double loss_sum = 0;       // sum of token losses
  int64_t input_tokens = 0;  // without padding
};

class StepGradients {
 public:
  explicit StepGradients(int64_t size) : size_(size) {}

  // Starts `step`: what belongs to another step is forgotten (its memory is reused).
  void BeginStep(int64_t step);
  // Keeps only the vectors of these logical ranks; others' memory is freed.
  void KeepOnly(const std::vector<int>& logical_ranks);

  // Micro-batches of the share that are already in its vector: an interrupted share goes on
  // where it was.
  int64_t MicroBatchesDone(int logical_rank) const;
  // The vector [size] to add the next micro-batch's gradient to; zeroed for the first one.
  torch::Tensor Accumulator(int logical_rank);
  void AddMicroBatch(int logical_rank, double loss_sum, int64_t input_tokens);

  std::span<const float> Gradient(int logical_rank) const;
  // The same memory, for the result of a reduction that nothing can interrupt.
  std::span<float> Overwrite(int logical_rank);
  const ShareResult& Share(int logical_rank) const;

 private:
  struct Slot {
    torch::Tensor gradient;
    ShareResult result;
    int64_t micro_batches_done = 0;
  };
  int64_t size_;
  int64_t step_ = -1;
  std::map<int, Slot> slots_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_PARALLEL_STEP_GRADIENTS_H_
