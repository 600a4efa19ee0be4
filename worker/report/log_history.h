// What a run has logged so far: a value that ranks replicate and checkpoints carry.
#ifndef EVERSTEP_WORKER_REPORT_LOG_HISTORY_H_
#define EVERSTEP_WORKER_REPORT_LOG_HISTORY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace everstep {

struct LogRecord {
  int64_t step = 0;  // completed optimizer steps
  double epoch = 0;
  // Keys as in trainer_state.json: "loss", "grad_norm", "learning_rate"; "eval_loss",
  // "eval_runtime", ...; "train_loss", "train_runtime", ... (the last record).
  std::map<std::string, double> values{};
  double elapsed_seconds = 0;  // of training, when it was logged
  int64_t input_tokens = 0;    // seen so far; 0 unless include_num_input_tokens_seen

  bool operator==(const LogRecord&) const = default;
};

class LogHistory {
 public:
  void Add(LogRecord record) { records_.push_back(std::move(record)); }
  const std::vector<LogRecord>& records() const { return records_; }

  // Numbers come back with the same bits; those that are not finite as not-a-number.
  Json ToJson() const;
  // kDataLoss names what is malformed.
  static Result<LogHistory> FromJson(const Json& json);

  bool operator==(const LogHistory&) const = default;

 private:
  std::vector<LogRecord> records_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_REPORT_LOG_HISTORY_H_
