// Which samples make up which step: LLaMA-Factory's order (transformers' Trainer on accelerate's
// seedable sampler), as a pure function of the options.
#ifndef EVERSTEP_WORKER_DATA_SAMPLE_ORDER_H_
#define EVERSTEP_WORKER_DATA_SAMPLE_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace everstep {

struct SampleOrderOptions {
  int64_t samples = 0;  // at least 1
  int64_t batch_size = 1;
  int64_t accumulation = 1;
  int64_t logical_world = 1;
  int64_t seed = 42;  // data_seed if given, else seed
  bool shuffle = true;
  bool drop_last = false;
  double num_train_epochs = 3;
  int64_t max_steps = -1;  // above 0: overrides num_train_epochs
};

// Epoch e is the permutation torch.randperm makes from seed+e, cut into batches that are dealt to
// the logical ranks in turn. With several logical ranks the last round is filled up from the
// epoch's first batches. The last step of an epoch may have fewer micro-batches than
// `accumulation`. Safe to use from several threads.
class SampleOrder {
 public:
  explicit SampleOrder(const SampleOrderOptions& options);

  int64_t max_steps() const { return max_steps_; }
  int64_t updates_per_epoch() const { return updates_per_epoch_; }
  // Micro-batches that each logical rank has in an epoch. 0 when drop_last leaves nothing.
  int64_t batches_per_epoch() const { return batches_per_epoch_; }
  int64_t epochs() const { return epochs_; }

  // What is logged as "epoch" when `step` updates are done (step from 1).
  double EpochAfter(int64_t step) const;

  // Sample numbers of each accumulation micro-batch of the update number `step` (from 0).
  std::vector<std::vector<size_t>> MicroBatches(int64_t step, int64_t logical_rank) const;

 private:
  std::vector<size_t> Batch(const std::vector<uint32_t>& order, int64_t batch) const;

  SampleOrderOptions options_;
  int64_t batches_per_epoch_ = 0;
  int64_t updates_per_epoch_ = 0;
  int64_t max_steps_ = 0;
  int64_t epochs_ = 0;

  // The permutation that was used last: neighbouring steps share it.
  mutable std::mutex mutex_;
  mutable int64_t cached_epoch_ = -1;
  mutable std::vector<uint32_t> cached_order_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_SAMPLE_ORDER_H_
