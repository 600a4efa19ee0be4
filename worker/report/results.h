// train_results.json, eval_results.json and all_results.json, and the numbers in them.
#ifndef EVERSTEP_WORKER_REPORT_RESULTS_H_
#define EVERSTEP_WORKER_REPORT_RESULTS_H_

#include <cstdint>
#include <map>
#include <string>

namespace everstep {

// "epoch", "train_loss", "eval_loss", ... -> value.
using Metrics = std::map<std::string, double>;

struct TrainSummary {
  double epoch = 0;
  double total_flos = 0;
  double train_loss = 0;  // mean over all steps
  double runtime_seconds = 0;
  int64_t steps = 0;   // of the whole run (max_steps)
  double samples = 0;  // max_steps * global batch, or samples * epochs without max_steps
};
// epoch, total_flos, train_loss, train_runtime, train_samples_per_second, train_steps_per_second:
// rounded as transformers' speed_metrics does.
Metrics TrainMetrics(const TrainSummary& summary);

struct EvalSummary {
  std::string prefix = "eval";  // "eval", or "eval_<data set>"
  double epoch = 0;
  double loss = 0;
  double runtime_seconds = 0;
  int64_t samples = 0;
  int64_t batches = 0;
};
// <prefix>_loss, <prefix>_runtime, <prefix>_samples_per_second, <prefix>_steps_per_second, epoch.
Metrics EvalMetrics(const EvalSummary& summary);

// The file's text: keys sorted, four spaces, no new line at the end. all_results.json is that of
// both maps merged (Metrics::merge or insert).
std::string ResultsJson(const Metrics& metrics);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_REPORT_RESULTS_H_
