#include "worker/parallel/step_gradients.h"

#include <algorithm>

#include "common/check.h"

namespace everstep {

void StepGradients::BeginStep(int64_t step) {
  if (step == step_) return;
  step_ = step;
  for (auto& [logical_rank, slot] : slots_) {
    slot.micro_batches_done = 0;
    slot.result = {};
  }
}

void StepGradients::KeepOnly(const std::vector<int>& logical_ranks) {
  std::erase_if(slots_, [&](const auto& entry) {
    return std::find(logical_ranks.begin(), logical_ranks.end(), entry.first) ==
           logical_ranks.end();
  });
}

int64_t StepGradients::MicroBatchesDone(int logical_rank) const {
  const auto found = slots_.find(logical_rank);
  return found == slots_.end() ? 0 : found->second.micro_batches_done;
}

torch::Tensor StepGradients::Accumulator(int logical_rank) {
  Slot& slot = slots_[logical_rank];
  if (!slot.gradient.defined()) {
    slot.gradient = torch::zeros({size_}, torch::kFloat32);
  } else if (slot.micro_batches_done == 0) {
    slot.gradient.zero_();
  }
  return slot.gradient;
}

void StepGradients::AddMicroBatch(int logical_rank, double loss_sum, int64_t input_tokens) {
  Slot& slot = slots_.at(logical_rank);
  slot.result.loss_sum += loss_sum;
  slot.result.input_tokens += input_tokens;
  ++slot.micro_batches_done;
}

std::span<const float> StepGradients::Gradient(int logical_rank) const {
  const Slot& slot = slots_.at(logical_rank);
  EVERSTEP_CHECK(slot.micro_batches_done > 0);
  return {slot.gradient.const_data_ptr<float>(), static_cast<size_t>(size_)};
}

std::span<float> StepGradients::Overwrite(int logical_rank) {
  return {slots_.at(logical_rank).gradient.data_ptr<float>(), static_cast<size_t>(size_)};
}

const ShareResult& StepGradients::Share(int logical_rank) const {
  return slots_.at(logical_rank).result;
}

}  // namespace everstep
