#include "operator/cli/inspect_commands.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
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

// Empty for a job that nothing has happened to yet.
Result<OrderedJson> ReadStatus(const std::string& run_directory, const std::string& job) {
  const std::string path = ObjectPath(run_directory, job);
  const auto text = ReadFile(path);
  if (!text) return NotFound("no job '" + job + "' in " + run_directory);
  ASSIGN_OR_RETURN(const OrderedJson object, ParseOrderedJson(*text, path));
  const bool has_status = object.is_object() && object.contains("status");
  return has_status && object["status"].is_object() ? object["status"] : OrderedJson::object();
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

void PrintFile(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text) {
    std::fprintf(stderr, "%s\n", text.error().message.c_str());
    return;
  }
  std::fwrite(text->data(), 1, text->size(), stdout);
  // Who was killed has not ended its line.
  if (!text->empty() && text->back() != '\n') std::fputc('\n', stdout);
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
    const auto status = ReadStatus(run_directory, job);
    if (!status) {
      std::fprintf(stderr, "%s\n", status.error().message.c_str());
      return kExitBadInput;
    }
    std::printf("%s\n", DumpJson(*status, 2).c_str());
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
    const auto status = ReadStatus(run_directory, name);
    if (!status) {
      // A folder without a job is none of ours.
      if (status.error().code == ErrorCode::kNotFound) continue;
      std::fprintf(stderr, "%s\n", status.error().message.c_str());
      continue;
    }
    if (json) {
      all.push_back({{"name", name}, {"status", *status}});
    } else {
      PrintRow(name, *status);
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
    const std::string of = replica ? "replica " + std::to_string(*replica) + " of " : "";
    std::fprintf(stderr, "no logs of %sjob '%s' in %s\n", of.c_str(), job.c_str(), logs.c_str());
    return kExitBadInput;
  }
  // Replica 2 before replica 10.
  std::ranges::sort(files, [](const fs::path& a, const fs::path& b) {
    return strverscmp(a.c_str(), b.c_str()) < 0;
  });
  for (const fs::path& file : files) {
    if (files.size() > 1) std::printf("==> %s <==\n", file.stem().c_str());
    PrintFile(file);
  }
  return kExitSucceeded;
}

}  // namespace everstep
