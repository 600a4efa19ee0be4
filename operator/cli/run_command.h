// `everstep run`: a TrainingJob on this machine, from manifest to result.
#ifndef EVERSTEP_OPERATOR_CLI_RUN_COMMAND_H_
#define EVERSTEP_OPERATOR_CLI_RUN_COMMAND_H_

#include <string>

namespace everstep {

struct RunOptions {
  std::string manifest;
  std::string run_directory = "everstep-runs";  // the job gets a folder of its own in it
  int rendezvous_port = 0;                      // 0: any free one
  bool json = false;
  bool quiet = false;
  bool again = false;  // forget what an earlier run of the job came to
};

inline constexpr int kExitSucceeded = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitInterrupted = 130;

int RunCommand(const RunOptions& options);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CLI_RUN_COMMAND_H_
