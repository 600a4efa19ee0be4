// trainer_state.json with all keys that transformers 5 writes, so that its Trainer can read it.
#ifndef EVERSTEP_WORKER_REPORT_TRAINER_STATE_H_
#define EVERSTEP_WORKER_REPORT_TRAINER_STATE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "worker/report/log_history.h"

namespace everstep {

struct TrainerStateFacts {
  double epoch = 0;
  int64_t global_step = 0;
  int64_t max_steps = 0;
  int64_t num_train_epochs = 0;
  // Resolved to whole steps; 500 where the training file has none.
  int64_t logging_steps = 500;
  int64_t eval_steps = 500;
  int64_t save_steps = 500;
  int64_t train_batch_size = 8;  // per_device_train_batch_size
  int64_t input_tokens_seen = 0;
  double total_flos = 0;
  bool should_save = true;  // a checkpoint belongs to this step
  // load_best_model_at_end; absent otherwise.
  std::optional<double> best_metric;
  std::optional<int64_t> best_global_step;
  std::optional<std::string> best_model_checkpoint;
};

// The file's text: keys sorted, two spaces.
std::string TrainerStateJson(const TrainerStateFacts& facts, const LogHistory& history);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_REPORT_TRAINER_STATE_H_
