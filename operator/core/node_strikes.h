// Which nodes a job's pods shall avoid: faults that a node may be to blame for are remembered in
// status, and too many of them within the recovery window exclude it. Pure.
#ifndef EVERSTEP_OPERATOR_CORE_NODE_STRIKES_H_
#define EVERSTEP_OPERATOR_CORE_NODE_STRIKES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/json.h"
#include "operator/api/training_job.h"

namespace everstep {

// Remembers one fault on `node` in status.nodeStrikes. An empty name (unknown) is nobody's.
void StrikeNode(OrderedJson& status, const std::string& node, int64_t now_unix_seconds);

struct NodeVerdicts {
  std::vector<std::string> excluded;  // recovery.excludeNodeAfter faults or more: no pod goes there
  std::vector<std::string> avoided;   // fewer: no pod goes there if there is another node
};

// Also forgets what is older than the window, and writes status.excludedNodes.
NodeVerdicts JudgeNodes(OrderedJson& status, const RecoverySpec& policy, int64_t now_unix_seconds);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CORE_NODE_STRIKES_H_
