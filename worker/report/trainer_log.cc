#include "worker/report/trainer_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "common/files.h"
#include "common/json.h"
#include "common/strings.h"
#include "worker/report/python_json.h"

namespace everstep {
namespace {

// Key in the log history -> key in trainer_log.jsonl, in the order of its lines.
constexpr std::array<std::pair<const char*, const char*>, 6> kKeys{
    {{"loss", "loss"},
     {"eval_loss", "eval_loss"},
     {"predict_loss", "predict_loss"},
     {"reward", "reward"},
     {"rewards/accuracies", "accuracy"},
     {"learning_rate", "lr"}}};

double Percentage(int64_t step, int64_t total_steps) {
  if (total_steps == 0) return 100;
  return PythonRound(static_cast<double>(step) / static_cast<double>(total_steps) * 100, 2);
}

}  // namespace

std::string TrainerLogLine(const LogRecord& record, int64_t total_steps) {
  OrderedJson line;
  line["current_steps"] = record.step;
  line["total_steps"] = total_steps;
  for (const auto& [key, name] : kKeys) {
    const auto value = record.values.find(key);
    if (value != record.values.end()) line[name] = value->second;
  }
  line["epoch"] = record.epoch;
  line["percentage"] = Percentage(record.step, total_steps);
  const double seconds_per_step =
      record.step > 0 ? record.elapsed_seconds / static_cast<double>(record.step) : 0;
  line["elapsed_time"] = FormatDuration(record.elapsed_seconds);
  line["remaining_time"] =
      FormatDuration(static_cast<double>(total_steps - record.step) * seconds_per_step);
  if (record.input_tokens > 0) {
    const double tokens = static_cast<double>(record.input_tokens);
    line["throughput"] =
        PythonRound(record.elapsed_seconds > 0 ? tokens / record.elapsed_seconds : 0, 2);
    line["total_tokens"] = record.input_tokens;
  }
  return PythonJson(line) + "\n";
}

std::string TrainerLogText(const LogHistory& history, int64_t total_steps) {
  std::string text;
  for (const LogRecord& record : history.records()) text += TrainerLogLine(record, total_steps);
  return text;
}

Status TrainerLog::Rewrite(const LogHistory& history) const {
  return WriteFileAtomically(path_, TrainerLogText(history, total_steps_));
}

Status TrainerLog::Append(const LogRecord& record) const {
  const int fd = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return MakeError(ErrorCode::kFailedPrecondition, path_ + ": cannot open: " + ErrnoText(errno));
  }
  const std::string line = TrainerLogLine(record, total_steps_);
  const ssize_t written = write(fd, line.data(), line.size());
  const int error = errno;
  close(fd);
  if (written == static_cast<ssize_t>(line.size())) return {};
  // A short write means that the disk is full; the next Rewrite puts the line right.
  const bool full = written >= 0 || error == ENOSPC || error == EDQUOT;
  return MakeError(full ? ErrorCode::kResourceExhausted : ErrorCode::kFailedPrecondition,
                   path_ + ": cannot append: " + ErrnoText(full ? ENOSPC : error));
}

}  // namespace everstep
