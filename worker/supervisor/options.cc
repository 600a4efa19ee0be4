#include "worker/supervisor/options.h"

#include <unistd.h>

#include <charconv>
#include <limits>
#include <string_view>

#include "common/strings.h"

namespace everstep {
namespace {

// Processes in one pod; a bound against a mistyped number, far above any machine.
constexpr int kMaxProcesses = 1024;
constexpr int kMaxGraceSeconds = 24 * 60 * 60;

// Reads variables and collects what is wrong with them.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::string Text(const char* name) const {
    const auto it = environment_.find(name);
    return it == environment_.end() ? "" : it->second;
  }
  int Number(const char* name, int fallback, int min, int max) {
    const std::string text = Text(name);
    if (text.empty()) return fallback;
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= min && value <= max) {
      return value;
    }
    Complain(name, "a number from " + std::to_string(min) + " to " + std::to_string(max), text);
    return fallback;
  }
  void Complain(const char* name, const std::string& must, const std::string& is) {
    problems_.push_back(std::string(name) + ": must be " + must + ", is '" + is + "'");
  }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  const Environment& environment_;
  std::vector<std::string> problems_;
};

}  // namespace

Result<SupervisorOptions> ReadSupervisorOptions(const Environment& environment,
                                                std::vector<std::string> command,
                                                const std::string& default_program) {
  constexpr int kMax = std::numeric_limits<int>::max() / kMaxProcesses;
  Reader read(environment);
  SupervisorOptions options;
  options.hello.job = read.Text("EVERSTEP_JOB");
  options.hello.token = read.Text("EVERSTEP_TOKEN");
  options.hello.pod = read.Text("EVERSTEP_POD");
  options.hello.node = read.Text("EVERSTEP_NODE");
  options.hello.replica = read.Number("EVERSTEP_REPLICA", 0, 0, kMax);
  options.hello.incarnation = read.Number("EVERSTEP_INCARNATION", 0, 0, kMax);
  options.hello.processes = read.Number("EVERSTEP_PROCESSES", 1, 1, kMaxProcesses);
  const int least = (options.hello.replica + 1) * options.hello.processes;
  options.world_size = read.Number("WORLD_SIZE", least, least, std::numeric_limits<int>::max());
  options.stop_grace_seconds = read.Number("EVERSTEP_STOP_GRACE_SECONDS", 30, 0, kMaxGraceSeconds);
  const std::string rendezvous = read.Text("EVERSTEP_RENDEZVOUS");
  if (!rendezvous.empty()) {
    const size_t colon = rendezvous.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == rendezvous.size()) {
      read.Complain("EVERSTEP_RENDEZVOUS", "host:port", rendezvous);
    } else {
      const bool bracketed = rendezvous[0] == '[' && rendezvous[colon - 1] == ']';  // IPv6
      options.rendezvous_host =
          bracketed ? rendezvous.substr(1, colon - 2) : rendezvous.substr(0, colon);
      options.rendezvous_port = rendezvous.substr(colon + 1);
    }
  }
  options.parent_pid =
      read.Number("EVERSTEP_DIE_WITH_PARENT", 0, 1, std::numeric_limits<int>::max());
  if (!read.problems().empty()) return InvalidArgument(Join(read.problems(), "\n"));
  if (command.empty()) command.push_back(default_program);
  options.command = std::move(command);
  options.environment = environment;
  // For this pod's supervisor, not for the programs under it.
  options.environment.erase("EVERSTEP_DIE_WITH_PARENT");
  return options;
}

Environment ProcessEnvironment(const SupervisorOptions& options, int local) {
  Environment environment = options.environment;
  const int processes = options.hello.processes;
  const auto set = [&](const char* name, int value) { environment[name] = std::to_string(value); };
  const auto keep = [&](const char* name, int value) {
    environment.emplace(name, std::to_string(value));
  };
  set("RANK", options.hello.replica * processes + local);
  set("LOCAL_RANK", local);
  set("WORLD_SIZE", options.world_size);
  set("LOCAL_WORLD_SIZE", processes);
  keep("NODE_RANK", options.hello.replica);
  keep("NNODES", options.world_size / processes);
  keep("NPROC_PER_NODE", processes);
  return environment;
}

Environment CurrentEnvironment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

}  // namespace everstep
