// Loss (and accuracy) over the evaluation examples, shared among the members.
#ifndef EVERSTEP_WORKER_EVALUATOR_H_
#define EVERSTEP_WORKER_EVALUATOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "worker/comm/communicator.h"
#include "worker/workload.h"

namespace everstep {

struct Evaluation {
  std::string name;  // "" or the data set's name
  // Mean over the examples of their batch's mean token loss, as transformers' evaluation loop.
  double loss = 0;
  std::optional<double> accuracy;  // mean over the examples of their share of right tokens
  int64_t examples = 0;
};

// Collective. Batch i is computed by member i modulo the number of members; the results are added
// in batch order, so they do not depend on the membership.
Result<std::vector<Evaluation>> Evaluate(Workload& workload, Communicator& communicator);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_EVALUATOR_H_
