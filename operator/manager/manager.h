// The operator in a cluster: everything put together, from the start to the end of the process.
#ifndef EVERSTEP_OPERATOR_MANAGER_MANAGER_H_
#define EVERSTEP_OPERATOR_MANAGER_MANAGER_H_

#include "operator/manager/options.h"

namespace everstep {

// Runs until SIGTERM or SIGINT (exit code 0), until another operator leads (1), or until something
// is wrong that a person has to change (2). The signals must be blocked in all threads before.
int RunManager(const ManagerOptions& options);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_MANAGER_MANAGER_H_
