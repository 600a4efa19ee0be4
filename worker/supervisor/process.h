// Starts a program as a child: own process group, own environment, standard error on a pipe, a
// control socket and the heartbeat's memory passed on. It dies with this process.
#ifndef EVERSTEP_WORKER_SUPERVISOR_PROCESS_H_
#define EVERSTEP_WORKER_SUPERVISOR_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/result.h"
#include "worker/supervisor/options.h"

namespace everstep {

struct SpawnRequest {
  std::vector<std::string> command;
  Environment environment;
  int heartbeat_fd = -1;  // stays the caller's
};

// The parent's ends; the caller closes them and reaps the process.
struct SpawnedProcess {
  pid_t pid = -1;
  int control_fd = -1;
  int stderr_fd = -1;  // non-blocking
};

// The error names the program and why it could not be started.
Result<SpawnedProcess> Spawn(const SpawnRequest& request);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_SUPERVISOR_PROCESS_H_
