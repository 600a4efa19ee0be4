// What a job's status says to people and tools, derived from the rest of it: conditions, counts,
// and a message on what a job that does not run is waiting for. Pure.
#ifndef EVERSTEP_OPERATOR_CORE_CONCLUSION_H_
#define EVERSTEP_OPERATOR_CORE_CONCLUSION_H_

#include <string>

#include "common/clock.h"
#include "common/json.h"
#include "operator/core/reconcile.h"

namespace everstep {

// Why the job's volume cannot be mounted; an empty reason: it can.
struct VolumeProblem {
  std::string reason;   // CamelCase
  std::string message;  // with the remedy
};
VolumeProblem FindVolumeProblem(const Observed& observed);

// The first pod that waits for something out of the ordinary: "pod job-1-0: Unschedulable: ...".
std::string WhatPodsWaitFor(const Observed& observed);

void Conclude(const Observed& observed, WallTime now, OrderedJson& status);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CORE_CONCLUSION_H_
