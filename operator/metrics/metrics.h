// The operator's figures in Prometheus' text format. No label has a job's name: there may be any
// number of jobs.
#ifndef EVERSTEP_OPERATOR_METRICS_METRICS_H_
#define EVERSTEP_OPERATOR_METRICS_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace everstep {

struct MetricsSnapshot {
  bool leading = false;
  bool synced = false;
  std::map<std::pair<std::string, std::string>, int> jobs;  // by namespace and phase
  // The reconcile queue.
  double queue_depth = 0;
  double queue_added = 0;
  double queue_retried = 0;
  double queue_unfinished_seconds = 0;
  double queue_longest_seconds = 0;
};

// With the process's own memory, processor time and descriptors beside it.
std::string MetricsPage(const MetricsSnapshot& snapshot);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_METRICS_METRICS_H_
