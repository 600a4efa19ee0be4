// Commands that only look: validate, status, logs.
#ifndef EVERSTEP_OPERATOR_CLI_INSPECT_COMMANDS_H_
#define EVERSTEP_OPERATOR_CLI_INSPECT_COMMANDS_H_

#include <optional>
#include <string>

namespace everstep {

int ValidateCommand(const std::string& manifest);
// All jobs of the run directory in a table, or one job's whole status; with `json` as JSON.
int StatusCommand(const std::string& run_directory, const std::string& job, bool json);
// The output of the job's pods; of one replica with `replica`.
int LogsCommand(const std::string& run_directory, const std::string& job,
                std::optional<int> replica);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CLI_INSPECT_COMMANDS_H_
