// The replicated training state of a rank: what must be equal, bit for bit, on every member.
//
// All trainable parameters live in one flat fp32 vector (the model's tensors are views into it),
// Adam's moments likewise. Copying, sending and hashing the state are operations on three
// contiguous ranges and a short JSON document.
#ifndef EVERSTEP_WORKER_PARALLEL_TRAINING_STATE_H_
#define EVERSTEP_WORKER_PARALLEL_TRAINING_STATE_H_

#include <torch/torch.h>

#include <cstdint>
#include <span>

#include "common/json.h"
#include "worker/parallel/layout.h"
#include "worker/report/log_history.h"

namespace everstep {

// Small values that grow with the run. Part of the replicated state.
struct TrainingCounters {
  int64_t step = 0;  // completed optimizer steps
  // Logging, evaluation and saving that belong to the end of `step` are done.
  bool boundary_done = true;
  double loss_since_log = 0;  // sum of the steps' losses since the last log line
  int64_t last_logged_step = 0;
  double loss_total = 0;       // sum of all steps' losses
  int64_t tokens_seen = 0;     // non-padding input tokens
  int64_t padded_tokens = 0;   // the same with padding: what was computed on
  double elapsed_seconds = 0;  // of training, over all lives of the job
  int64_t best_step = 0;       // whose evaluation was the best one so far; 0: none was
  double best_metric = 0;      // metric_for_best_model then
};

class TrainingState {
 public:
  explicit TrainingState(FlatLayout layout);

  const FlatLayout& layout() const { return layout_; }
  torch::Tensor& parameters() { return parameters_; }
  std::span<float> Parameters() { return Span(parameters_); }
  std::span<float> FirstMoment() { return Span(first_moment_); }
  std::span<float> SecondMoment() { return Span(second_moment_); }

  TrainingCounters& counters() { return counters_; }
  const TrainingCounters& counters() const { return counters_; }
  LogHistory& history() { return history_; }

  // Orders states: the members take over the newest. A state without content is below all.
  int64_t version() const {
    return present_ ? counters_.step * 2 + (counters_.boundary_done ? 1 : 0) : kAbsent;
  }
  static constexpr int64_t kAbsent = -1;
  // Whether the state holds a run's content (set when it starts, loads or receives one).
  bool present() const { return present_; }
  void set_present(bool present) { present_ = present; }

  // The counters and the log history as a document, for transfer and checkpoints.
  Json SmallState() const;
  Status RestoreSmallState(const Json& document);

  // Hash (XXH3) over the three vectors: equal on all members after every step.
  uint64_t Hash();

 private:
  static std::span<float> Span(torch::Tensor& tensor);

  FlatLayout layout_;
  torch::Tensor parameters_, first_moment_, second_moment_;  // [layout.size], fp32
  TrainingCounters counters_;
  LogHistory history_;
  bool present_ = false;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_PARALLEL_TRAINING_STATE_H_
