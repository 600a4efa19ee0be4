// Everything a run needs before the first step, loaded and checked: tokenizer, data, model,
// order of samples, schedule, and the empty training state that the model's parameters live in.
#ifndef EVERSTEP_WORKER_WORKLOAD_H_
#define EVERSTEP_WORKER_WORKLOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "worker/boundary_schedule.h"
#include "worker/config/train_config.h"
#include "worker/data/collate.h"
#include "worker/data/prepare.h"
#include "worker/data/sample_order.h"
#include "worker/model/causal_lm.h"
#include "worker/optim/lr_schedule.h"
#include "worker/parallel/training_state.h"
#include "worker/text/tokenizer.h"

namespace everstep {

struct WorkloadOptions {
  std::string model_directory;  // model_name_or_path, downloaded if need be
  std::string output_directory;
  int logical_world = 1;
  int threads = 1;
  int64_t milestone_steps = 0;  // of checkpoints that are kept for good; 0: none is
  WallTime today;
};

class Workload {
 public:
  // Errors are kInvalidArgument or kNotFound when a person has to change something.
  static Result<std::unique_ptr<Workload>> Load(TrainConfig config, const WorkloadOptions& options);

  const TrainConfig& config() const { return config_; }
  const WorkloadOptions& options() const { return options_; }
  const std::string& output_directory() const { return options_.output_directory; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const PreparedData& data() const { return data_; }
  CausalLm& model() { return *model_; }
  TrainingState& state() { return *state_; }
  const SampleOrder& order() const { return *order_; }
  const LrSchedule& schedule() const { return *schedule_; }
  const BoundarySchedule& boundaries() const { return *boundaries_; }
  int logical_world() const { return options_.logical_world; }
  uint64_t seed() const { return static_cast<uint64_t>(config_.training.seed); }

  // Equal on all ranks of a job; a rank with another one must not take part in its sums.
  uint64_t fingerprint() const { return fingerprint_; }

  // What an evaluation is judged by ("eval_loss"); "" when nothing asks.
  const std::string& best_metric_name() const { return best_metric_name_; }

  // The micro-batches of a logical rank in update `step` (from 0).
  std::vector<MicroBatch> MicroBatches(int64_t step, int logical_rank) const;
  // Of the whole global batch of update `step`.
  struct StepTokens {
    int64_t labels = 0;  // trained on
    int64_t padded = 0;  // all, with padding
  };
  StepTokens TokensOf(int64_t step) const;
  // transformers' estimate for so many tokens, forward and backward.
  double FloatingPointOperations(int64_t padded_tokens) const {
    return 6.0 * static_cast<double>(padded_tokens * model_->ParametersBesidesEmbedding());
  }
  MicroBatch CollateRows(const std::vector<Example>& examples,
                         const std::vector<size_t>& indices) const;

 private:
  Workload(TrainConfig config, const WorkloadOptions& options, Tokenizer tokenizer);
  Status PlanSteps();
  Status FindBestMetric();
  Status CheckTokenIds() const;
  uint64_t ComputeFingerprint() const;

  TrainConfig config_;
  WorkloadOptions options_;
  Tokenizer tokenizer_;
  PreparedData data_;
  std::vector<int64_t> label_counts_;  // per training example
  std::unique_ptr<SampleOrder> order_;
  std::unique_ptr<LrSchedule> schedule_;
  std::unique_ptr<BoundarySchedule> boundaries_;
  std::unique_ptr<CausalLm> model_;
  std::unique_ptr<TrainingState> state_;
  std::string best_metric_name_;
  uint64_t fingerprint_ = 0;
};

// Tokens of the rows without padding.
int64_t InputTokens(const MicroBatch& batch);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_WORKLOAD_H_
