// trainer_log.jsonl: one line per log record, with LLaMA-Factory's keys in its order.
#ifndef EVERSTEP_WORKER_REPORT_TRAINER_LOG_H_
#define EVERSTEP_WORKER_REPORT_TRAINER_LOG_H_

#include <cstdint>
#include <string>

#include "common/result.h"
#include "worker/report/log_history.h"

namespace everstep {

// {"current_steps": 1, "total_steps": 12, "loss": 8.1, "lr": 0.0, "epoch": 0.125,
//  "percentage": 8.33, "elapsed_time": "0:00:00", "remaining_time": "0:00:01"}
// with a new line at the end; "throughput" and "total_tokens" when input tokens are counted.
std::string TrainerLogLine(const LogRecord& record, int64_t total_steps);
std::string TrainerLogText(const LogHistory& history, int64_t total_steps);

// The file in an output directory. One writer at a time: the lead.
class TrainerLog {
 public:
  TrainerLog(std::string path, int64_t total_steps)
      : path_(std::move(path)), total_steps_(total_steps) {}

  // Makes the file say what `history` says: after a takeover or a resume, lines that the former
  // lead lost or that belong to undone steps would be wrong otherwise. Replaced in one step.
  Status Rewrite(const LogHistory& history) const;
  // Appends one line in one write.
  Status Append(const LogRecord& record) const;

 private:
  std::string path_;
  int64_t total_steps_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_REPORT_TRAINER_LOG_H_
