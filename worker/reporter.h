// Where a worker's news go: to its supervisor, or nowhere when it runs alone.
#ifndef EVERSTEP_WORKER_REPORTER_H_
#define EVERSTEP_WORKER_REPORTER_H_

#include <vector>

#include "common/wire.h"

namespace everstep {

class Reporter {
 public:
  virtual ~Reporter() = default;
  // Never blocks for long and never fails: training does not depend on who listens. Thread-safe.
  virtual void Report(const wire::Message& message) = 0;
};

// For a worker without a supervisor: progress as log lines.
class LogReporter final : public Reporter {
 public:
  void Report(const wire::Message& message) override;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_REPORTER_H_
