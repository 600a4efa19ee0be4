#include "operator/cli/inspect_commands.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "common/files.h"
#include "common/json.h"
#include "operator/api/names.h"
#include "operator/cli/manifest.h"
#include "operator/cli/run_command.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

std::string ObjectPath(const std::string& run_directory, const std::string& job) {
  return run_directory + "/" + job + "/state/" + names::kKind + "/" + job + ".json";
}

Result<OrderedJson> ReadJob(const std::string& run_directory, const std::string& job) {
  const std::string path = ObjectPath(run_directory, job);
  const auto text = ReadFile(path);
  if (!text) return NotFound("no job '" + job + "' in " + run_directory);
  return ParseOrderedJson(*text, path);
}

std::string Cell(const OrderedJson& status, const char* group, const char* key) {
  if (!status.contains(group) || !status[group].contains(key)) return "-";
  return DumpJson(status[group][key]);
}

void PrintRow(const std::string& name, const OrderedJson& status) {
  const OrderedJson replicas = status.value("replicaStatuses", OrderedJson::object());
  const std::string ready = std::to_string(replicas.value("running", 0)) + "/" +
                            std::to_string(replicas.value("desired", 0));
  const std::string step =
      Cell(status, "progress", "step") + "/" + Cell(status, "progress", "totalSteps");
  std::printf("%-24s %-11s %-7s %-11s %-11s %-9s\n", name.c_str(),
              status.value("phase", "Pending").c_str(), ready.c_str(), step.c_str(),
              Cell(status, "checkpoint", "step").c_str(),
              Cell(status, "restarts", "total").c_str());
}

}  // namespace

int ValidateCommand(const std::string& path) {
  const auto manifest = LoadManifest(path);
  if (!manifest) {
    std::fprintf(stderr, "%s\n", manifest.error().message.c_str());
    return kExitBadInput;
  }
  for (const std::string& warning : manifest->warnings) {
    std::printf("warning: %s\n", warning.c_str());
  }
  std::printf("%s: TrainingJob %s is valid\n", path.c_str(), manifest->job.name.c_str());
  return kExitSucceeded;
}

int StatusCommand(const std::string& run_directory, const std::string& job, bool json) {
  if (!job.empty()) {
    const auto object = ReadJob(run_directory, job);
    if (!object) {
      std::fprintf(stderr, "%s\n", object.error().message.c_str());
      return kExitBadInput;
    }
    std::printf("%s\n", DumpJson(object->value("status", OrderedJson::object()), 2).c_str());
    return kExitSucceeded;
  }
  OrderedJson all = OrderedJson::array();
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run_directory, error)) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  if (!json) {
    std::printf("%-24s %-11s %-7s %-11s %-11s %-9s\n", "NAME", "PHASE", "READY", "STEP",
                "CHECKPOINT", "RESTARTS");
  }
  for (const std::string& name : names) {
    const auto object = ReadJob(run_directory, name);
    if (!object) continue;
    const OrderedJson status = object->value("status", OrderedJson::object());
    if (json) {
      all.push_back({{"name", name}, {"status", status}});
    } else {
      PrintRow(name, status);
    }
  }
  if (json) std::printf("%s\n", DumpJson(all, 2).c_str());
  return kExitSucceeded;
}

int LogsCommand(const std::string& run_directory, const std::string& job,
                std::optional<int> replica) {
  const fs::path logs = fs::path(run_directory) / job / "logs";
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(logs, error)) files.push_back(entry.path());
  if (replica) {
    const std::string prefix = job + "-" + std::to_string(*replica) + "-";
    std::erase_if(
        files, [&](const fs::path& file) { return !file.filename().string().starts_with(prefix); });
  }
  if (files.empty()) {
    std::fprintf(stderr, "no logs of job '%s' in %s\n", job.c_str(), logs.c_str());
    return kExitBadInput;
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    const auto text = ReadFile(file);
    if (files.size() > 1) std::printf("==> %s <==\n", file.stem().c_str());
    if (text) std::fputs(text->c_str(), stdout);
  }
  return kExitSucceeded;
}

}  // namespace everstep
