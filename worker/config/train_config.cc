#include "worker/config/train_config.h"

#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <set>

#include "common/files.h"
#include "common/strings.h"
#include "worker/config/arguments.h"
#include "worker/config/key_reader.h"
#include "worker/config/known_keys.h"
#include "worker/config/training_file.h"

namespace everstep {
namespace {

bool SameValue(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.get<double>() == b.get<double>();
  return a == b;
}

// Nothing is asked for: null, or what would hold without the key.
bool IsDefault(const TrainingFileEntry& entry, const KnownKey& known) {
  const Json value =
      entry.value.is_string() ? ResolvePlainScalar(entry.value.get<std::string>()) : entry.value;
  if (value.is_null()) return true;
  if (known.default_value == "[]") return value == Json::array();
  return SameValue(value, ResolvePlainScalar(std::string(known.default_value)));
}

// Gives keys of older releases their present names.
void RenameKeys(std::string_view source, TrainingFile* file, std::vector<std::string>* warnings) {
  for (const RenamedKey& renamed : RenamedKeys()) {
    const TrainingFileEntry* found = file->Find(renamed.old_name);
    if (found == nullptr) continue;
    TrainingFileEntry& entry = file->entries[static_cast<size_t>(found - file->entries.data())];
    const std::string now(renamed.new_name);
    if (file->Find(now) != nullptr) {
      file->problems.push_back({entry.line, entry.key + ": is the old name of " + now +
                                                ", which is given too: remove it"});
      entry.value = nullptr;
      continue;
    }
    warnings->push_back(std::string(source) + ":" + std::to_string(entry.line) + ": " + entry.key +
                        " is now called " + now);
    entry.key = now;
  }
}

bool IsRenamed(std::string_view key) {
  for (const RenamedKey& renamed : RenamedKeys()) {
    if (renamed.old_name == key) return true;
  }
  return false;
}

// Sorts out what is not supported: unknown and refused keys are problems, those without effect
// get a warning.
void ScreenKeys(std::string_view source, TrainingFile* file, std::vector<std::string>* warnings) {
  for (const TrainingFileEntry& entry : file->entries) {
    const KnownKey* known = FindKnownKey(entry.key);
    if (known == nullptr) {
      if (IsRenamed(entry.key)) continue;
      file->problems.push_back(
          {entry.line, "unknown key '" + entry.key + "'" + DidYouMean(entry.key, KnownKeyNames())});
      continue;
    }
    if (known->support == Support::kSupported || IsDefault(entry, *known)) continue;
    const std::string note(known->note);
    if (known->support == Support::kRefused) {
      if (SameValue(entry.value, false) || SameValue(entry.value, "")) continue;
      file->problems.push_back({entry.line, entry.key + ": " + note});
    } else {
      warnings->push_back(std::string(source) + ":" + std::to_string(entry.line) + ": " +
                          entry.key + " has no effect here: " + note);
    }
  }
}

void WarnAbout(const TrainConfig& config, std::string_view source, const TrainingFile& file,
               std::vector<std::string>* warnings) {
  const auto warn = [&](std::string_view key, const std::string& text) {
    const TrainingFileEntry* entry = file.Find(key);
    const std::string line = entry == nullptr ? "" : ":" + std::to_string(entry->line);
    warnings->push_back(std::string(source) + line + ": " + std::string(key) + " " + text);
  };
  if (!config.training.report_to.empty()) {
    warn("report_to", Join(config.training.report_to, ", ") +
                          ": trackers are not connected; the figures are in trainer_log.jsonl");
  }
  const TrainingFileEntry* checkpointing = file.Find("gradient_checkpointing");
  if (checkpointing != nullptr && checkpointing->value == Json(false) &&
      config.training.gradient_checkpointing) {
    warn("gradient_checkpointing",
         "stays on, as in LLaMA-Factory: set disable_gradient_checkpointing: true");
  }
  const TrainingFileEntry* ratio = file.Find("warmup_ratio");
  if (ratio != nullptr && !ratio->value.is_null() && file.Find("warmup_steps") != nullptr) {
    warn("warmup_steps", "has no effect beside warmup_ratio: remove one of them");
  }
  if (config.finetuning.use_dft_loss && config.finetuning.stage != Stage::kSft) {
    warn("use_dft_loss", "has no effect here: it belongs to stage sft");
  }
}

// Without secrets: cards and logs are made from these.
Json RawKeys(const TrainingFile& file) {
  static const std::set<std::string, std::less<>> kSecret = {
      "hf_hub_token",      "ms_hub_token",    "om_hub_token",        "hub_token",
      "push_to_hub_token", "swanlab_api_key", "swanlab_lark_secret", "swanlab_lark_webhook_url"};
  Json raw = Json::object();
  for (const TrainingFileEntry& entry : file.entries) {
    if (!kSecret.contains(entry.key)) raw[entry.key] = entry.value;
  }
  return raw;
}

Result<TrainConfig> BuildConfig(TrainingFile file, std::string_view source,
                                const EnvironmentLookup& environment) {
  TrainConfig config;
  config.raw = RawKeys(file);
  RenameKeys(source, &file, &config.warnings);
  ScreenKeys(source, &file, &config.warnings);
  std::vector<Problem> problems = file.problems;
  KeyReader reader(file, &problems);
  ReadArguments(&reader, environment, &config);
  CheckArguments(&reader, &config);
  if (!problems.empty()) return InvalidArgument(FormatProblems(std::move(problems), source));
  WarnAbout(config, source, file, &config.warnings);
  return config;
}

}  // namespace

EnvironmentLookup ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

Result<TrainConfig> ParseTrainConfig(std::string_view text, std::string_view source,
                                     const EnvironmentLookup& environment) {
  ASSIGN_OR_RETURN(TrainingFile file, ReadTrainingFile(text, source, environment));
  return BuildConfig(std::move(file), source, environment);
}

Result<TrainConfig> ParseTrainConfig(const YAML::Node& mapping, std::string_view source,
                                     const EnvironmentLookup& environment) {
  ASSIGN_OR_RETURN(TrainingFile file, ReadTrainingFile(mapping, source, environment));
  return BuildConfig(std::move(file), source, environment);
}

Result<TrainConfig> LoadTrainConfig(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseTrainConfig(text, path);
}

}  // namespace everstep
