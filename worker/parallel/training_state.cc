#include "worker/parallel/training_state.h"

#include <xxhash.h>

namespace everstep {

TrainingState::TrainingState(FlatLayout layout)
    : layout_(std::move(layout)),
      parameters_(torch::zeros({layout_.size}, torch::kFloat32)),
      first_moment_(torch::zeros({layout_.size}, torch::kFloat32)),
      second_moment_(torch::zeros({layout_.size}, torch::kFloat32)) {}

std::span<float> TrainingState::Span(torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

Json TrainingState::SmallState() const {
  return Json{{"step", counters_.step},
              {"boundary_done", counters_.boundary_done},
              {"loss_since_log", counters_.loss_since_log},
              {"last_logged_step", counters_.last_logged_step},
              {"loss_total", counters_.loss_total},
              {"tokens_seen", counters_.tokens_seen},
              {"padded_tokens", counters_.padded_tokens},
              {"elapsed_seconds", counters_.elapsed_seconds},
              {"best_step", counters_.best_step},
              {"best_metric", counters_.best_metric},
              {"history", history_.ToJson()}};
}

Status TrainingState::RestoreSmallState(const Json& document) {
  if (!document.is_object() || !document.contains("step") || !document.contains("history")) {
    return DataLoss("the training state's document lacks 'step' or 'history'");
  }
  ASSIGN_OR_RETURN(history_, LogHistory::FromJson(document["history"]));
  counters_.step = JsonValue<int64_t>(document, "step", 0);
  counters_.boundary_done = JsonValue<bool>(document, "boundary_done", true);
  counters_.loss_since_log = JsonValue<double>(document, "loss_since_log", 0);
  counters_.last_logged_step = JsonValue<int64_t>(document, "last_logged_step", 0);
  counters_.loss_total = JsonValue<double>(document, "loss_total", 0);
  counters_.tokens_seen = JsonValue<int64_t>(document, "tokens_seen", 0);
  counters_.padded_tokens = JsonValue<int64_t>(document, "padded_tokens", 0);
  counters_.elapsed_seconds = JsonValue<double>(document, "elapsed_seconds", 0);
  counters_.best_step = JsonValue<int64_t>(document, "best_step", 0);
  counters_.best_metric = JsonValue<double>(document, "best_metric", 0);
  present_ = true;
  return {};
}

uint64_t TrainingState::Hash() {
  uint64_t hash = static_cast<uint64_t>(counters_.step);
  for (std::span<float> part : {Parameters(), FirstMoment(), SecondMoment()}) {
    hash = XXH3_64bits_withSeed(part.data(), part.size_bytes(), hash);
  }
  return hash;
}

}  // namespace everstep
