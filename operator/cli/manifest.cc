#include "operator/cli/manifest.h"

#include <iostream>
#include <iterator>
#include <sstream>

#include "common/files.h"
#include "operator/api/document.h"
#include "worker/config/train_config.h"

namespace everstep {
namespace {

Result<std::string> ReadManifest(const std::string& path) {
  if (path != "-") return ReadFile(path);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

size_t Indentation(const std::string& line) {
  const size_t text = line.find_first_not_of(' ');
  return text == std::string::npos ? line.size() : text;
}

// The train section as a document of its own in which every key stands on the line that it has in
// the manifest, so that messages point there. Falls back to a copy when it is written inline.
std::string TrainText(const std::string& manifest, const Document& document) {
  const std::string copy = DumpJson(document.value["spec"]["train"], 2);
  const auto found = document.lines.find("spec.train");
  if (found == document.lines.end()) return copy;
  std::istringstream in(manifest);
  std::string text;
  size_t indentation = 0;
  int number = 0;
  bool inside = false;
  for (std::string line; std::getline(in, line); text += '\n') {
    ++number;
    if (number == found->second) {
      indentation = Indentation(line);
      const size_t colon = line.find("train:");
      if (colon == std::string::npos || line.find_first_not_of(" \r", colon + 6) != line.npos) {
        return copy;
      }
      inside = true;
      continue;
    }
    const bool blank = line.find_first_not_of(" \r") == std::string::npos;
    if (inside && !blank && Indentation(line) <= indentation && line[indentation] != '#') {
      inside = false;
    }
    if (inside) text += line;
  }
  return text;
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
    const auto train = ParseTrainConfig(TrainText(text, document), path);
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
