// The `everstep` program.

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <optional>
#include <string>

#include "common/log.h"
#include "operator/cli/inspect_commands.h"
#include "operator/cli/run_command.h"

int main(int argc, char** argv) {
  CLI::App app{"Fault-tolerant fine-tuning of language models"};
  app.require_subcommand(1);
  app.set_version_flag("--version", EVERSTEP_VERSION);
  std::string run_directory = "everstep-runs";
  std::string manifest, job, log_format = "text";
  std::optional<int> rank;
  everstep::RunOptions run_options;

  CLI::App* run = app.add_subcommand("run", "Run a TrainingJob on this machine");
  run->add_option("manifest", run_options.manifest, "The job's YAML file, or -")->required();
  run->add_flag("--again", run_options.again, "Start over, also after success");
  run->add_option("--rendezvous-port", run_options.rendezvous_port,
                  "Port by which the ranks find each other; by default any free one")
      ->check(CLI::Range(1, 65535));
  run->add_flag("-q,--quiet", run_options.quiet, "Say nothing but errors");
  CLI::App* validate = app.add_subcommand("validate", "Check a TrainingJob without running it");
  validate->add_option("manifest", manifest, "The job's YAML file, or -")->required();
  CLI::App* status = app.add_subcommand("status", "Show jobs that were run here");
  status->add_option("job", job, "One job, in full");
  CLI::App* logs = app.add_subcommand("logs", "Print the output of a job's pods");
  logs->add_option("job", job, "The job's name")->required();
  logs->add_option("--rank", rank, "Only this replica's");
  for (CLI::App* command : {run, status, logs}) {
    command->add_option("--run-dir", run_directory, "Where jobs have their folders")
        ->capture_default_str();
    command->add_option("--log-format", log_format, "text or json")
        ->check(CLI::IsMember({"text", "json"}));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : everstep::kExitBadInput;
  }

  const bool json = log_format == "json";
  everstep::LogOptions log = everstep::LogOptionsFromEnvironment("");
  if (json) {
    log.format = everstep::LogFormat::kJson;
  } else if (std::getenv("EVERSTEP_LOG_LEVEL") == nullptr) {
    // What a person wants to know is said by the display.
    log.level = run_options.quiet ? everstep::LogLevel::kError : everstep::LogLevel::kWarning;
  }
  everstep::ConfigureLog(log);
  if (validate->parsed()) return everstep::ValidateCommand(manifest);
  if (status->parsed()) return everstep::StatusCommand(run_directory, job, json);
  if (logs->parsed()) return everstep::LogsCommand(run_directory, job, rank);
  run_options.run_directory = run_directory;
  run_options.json = json;
  return everstep::RunCommand(run_options);
}
