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

// What was asked for and does nothing here: said, not passed over in silence.
void WarnOfNoEffect(const TrainingJobSpec& spec, std::vector<std::string>* warnings) {
  if (spec.gpus_per_replica > 0) {
    warnings->push_back("spec.gpusPerReplica: GPUs are not used yet: the ranks compute on the CPU");
  }
  if (spec.spares > 0) {
    warnings->push_back("spec.spares: has no effect yet: a dead rank gets a new process");
  }
  if (spec.elastic.on_shrink == "ScaleBatch") {
    warnings->push_back("spec.elastic.onShrink: ScaleBatch has no effect yet: the batch is kept");
  }
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
  WarnOfNoEffect(job->spec, &manifest.warnings);
  manifest.job = std::move(*job);
  manifest.object = document.value;
  return manifest;
}

}  // namespace everstep
