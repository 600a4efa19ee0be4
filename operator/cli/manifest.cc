#include "operator/cli/manifest.h"

#include <yaml-cpp/yaml.h>

#include <iostream>
#include <iterator>

#include "common/files.h"
#include "operator/api/document.h"
#include "worker/config/train_config.h"

namespace everstep {
namespace {

Result<std::string> ReadManifest(const std::string& path) {
  if (path != "-") return ReadFile(path);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

}  // namespace

Result<Manifest> LoadManifest(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadManifest(path));
  ASSIGN_OR_RETURN(const Document document, ParseDocument(text, path));
  Manifest manifest;
  std::string problems;
  auto job = ParseTrainingJob(document);
  if (!job) problems = job.error().message;
  const bool has_train = document.value.contains("spec") && document.value["spec"].is_object() &&
                         document.value["spec"].contains("train") &&
                         document.value["spec"]["train"].is_object();
  if (has_train) {
    const auto train = ParseTrainConfig(YAML::Load(text)["spec"]["train"], path);
    if (train) {
      manifest.warnings = train->warnings;
    } else {
      problems += (problems.empty() ? "" : "\n") + train.error().message;
    }
  }
  if (!problems.empty()) return InvalidArgument(problems);
  manifest.job = std::move(*job);
  manifest.object = document.value;
  return manifest;
}

}  // namespace everstep
