#include "worker/data/sample_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/check.h"
#include "worker/data/random.h"

namespace everstep {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

SampleOrder::SampleOrder(const SampleOrderOptions& options) : options_(options) {
  EVERSTEP_CHECK(options.samples > 0 && options.batch_size > 0);
  EVERSTEP_CHECK(options.accumulation > 0 && options.logical_world > 0);
  const int64_t batches = options.drop_last ? options.samples / options.batch_size
                                            : CeilDiv(options.samples, options.batch_size);
  batches_per_epoch_ =
      options.drop_last ? batches / options.logical_world : CeilDiv(batches, options.logical_world);
  updates_per_epoch_ = std::max<int64_t>(1, CeilDiv(batches_per_epoch_, options.accumulation));
  if (options.max_steps > 0) {
    max_steps_ = options.max_steps;
    epochs_ = CeilDiv(max_steps_, updates_per_epoch_);
  } else {
    max_steps_ = static_cast<int64_t>(
        std::ceil(options.num_train_epochs * static_cast<double>(updates_per_epoch_)));
    epochs_ = static_cast<int64_t>(std::ceil(options.num_train_epochs));
  }
  if (batches_per_epoch_ == 0) max_steps_ = 0;
}

double SampleOrder::EpochAfter(int64_t step) const {
  if (step <= 0 || batches_per_epoch_ == 0) return 0;
  const int64_t epoch = (step - 1) / updates_per_epoch_;
  const int64_t update = (step - 1) % updates_per_epoch_ + 1;
  const int64_t batches = std::min(update * options_.accumulation, batches_per_epoch_);
  return static_cast<double>(epoch) +
         static_cast<double>(batches) / static_cast<double>(batches_per_epoch_);
}

std::vector<std::vector<size_t>> SampleOrder::MicroBatches(int64_t step,
                                                           int64_t logical_rank) const {
  EVERSTEP_CHECK(step >= 0 && step < max_steps_);
  EVERSTEP_CHECK(logical_rank >= 0 && logical_rank < options_.logical_world);
  const int64_t epoch = step / updates_per_epoch_;
  const int64_t first = step % updates_per_epoch_ * options_.accumulation;
  const int64_t last = std::min(first + options_.accumulation, batches_per_epoch_);

  const std::lock_guard lock(mutex_);
  if (cached_epoch_ != epoch) {
    if (options_.shuffle) {
      cached_order_ = TorchPermutation(static_cast<uint32_t>(options_.samples),
                                       static_cast<uint64_t>(options_.seed + epoch));
    } else {
      cached_order_.resize(static_cast<size_t>(options_.samples));
      std::iota(cached_order_.begin(), cached_order_.end(), 0u);
    }
    cached_epoch_ = epoch;
  }
  std::vector<std::vector<size_t>> batches;
  for (int64_t round = first; round < last; ++round) {
    batches.push_back(Batch(cached_order_, round * options_.logical_world + logical_rank));
  }
  return batches;
}

// With one logical rank the last batch may be short. With several, what is missing in the last
// round is taken from the epoch's first `world * batch_size` samples, over and over.
std::vector<size_t> SampleOrder::Batch(const std::vector<uint32_t>& order, int64_t batch) const {
  const auto size = static_cast<int64_t>(order.size());
  const int64_t first_round = std::min(size, options_.logical_world * options_.batch_size);
  std::vector<size_t> samples;
  for (int64_t i = batch * options_.batch_size; i < (batch + 1) * options_.batch_size; ++i) {
    if (i < size) {
      samples.push_back(order[static_cast<size_t>(i)]);
    } else if (options_.logical_world > 1) {
      samples.push_back(order[static_cast<size_t>((i - size) % first_round)]);
    }
  }
  return samples;
}

}  // namespace everstep
