#include "worker/report/results.h"

#include "common/json.h"
#include "worker/report/python_json.h"

namespace everstep {
namespace {

double PerSecond(double count, double seconds) {
  return seconds > 0 ? PythonRound(count / seconds, 3) : 0;
}

}  // namespace

Metrics TrainMetrics(const TrainSummary& summary) {
  return {{"epoch", summary.epoch},
          {"total_flos", summary.total_flos},
          {"train_loss", summary.train_loss},
          {"train_runtime", PythonRound(summary.runtime_seconds, 4)},
          {"train_samples_per_second", PerSecond(summary.samples, summary.runtime_seconds)},
          {"train_steps_per_second",
           PerSecond(static_cast<double>(summary.steps), summary.runtime_seconds)}};
}

Metrics EvalMetrics(const EvalSummary& summary) {
  const auto samples = static_cast<double>(summary.samples);
  const auto batches = static_cast<double>(summary.batches);
  return {{"epoch", summary.epoch},
          {summary.prefix + "_loss", summary.loss},
          {summary.prefix + "_runtime", PythonRound(summary.runtime_seconds, 4)},
          {summary.prefix + "_samples_per_second", PerSecond(samples, summary.runtime_seconds)},
          {summary.prefix + "_steps_per_second", PerSecond(batches, summary.runtime_seconds)}};
}

std::string ResultsJson(const Metrics& metrics) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [key, value] : metrics) json[key] = value;
  return PythonJson(json, 4);
}

}  // namespace everstep
