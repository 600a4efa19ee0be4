// What the supervisor is told by the environment of its pod. Pure: the environment is a parameter.
#ifndef EVERSTEP_WORKER_SUPERVISOR_OPTIONS_H_
#define EVERSTEP_WORKER_SUPERVISOR_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/wire.h"

namespace everstep {

using Environment = std::map<std::string, std::string>;

struct SupervisorOptions {
  wire::Hello hello;            // EVERSTEP_{JOB,TOKEN,REPLICA,INCARNATION,PROCESSES,POD,NODE}
  std::string rendezvous_host;  // EVERSTEP_RENDEZVOUS; "" = none: processes run on their own
  std::string rendezvous_port;
  int world_size = 1;  // WORLD_SIZE; processes of all replicas
  std::vector<std::string> command;
  int stop_grace_seconds = 30;  // EVERSTEP_STOP_GRACE_SECONDS; between SIGTERM and SIGKILL
  // EVERSTEP_DIE_WITH_PARENT: the process whose end ends this one too; 0 = none.
  int parent_pid = 0;
  Environment environment;  // what each process inherits
};

// `command` comes from the command line, `default_program` takes its place when it is empty. All
// problems come back in one Error, a line each.
Result<SupervisorOptions> ReadSupervisorOptions(const Environment& environment,
                                                std::vector<std::string> command,
                                                const std::string& default_program);

// The environment of process `local` of this pod: the inherited one with RANK, LOCAL_RANK,
// LOCAL_WORLD_SIZE, WORLD_SIZE, ...
Environment ProcessEnvironment(const SupervisorOptions& options, int local);

// The environment of this program.
Environment CurrentEnvironment();

}  // namespace everstep

#endif  // EVERSTEP_WORKER_SUPERVISOR_OPTIONS_H_
