// The text of a training file as a list of keys with their lines and untyped values.
//
// Scalars get the types that LLaMA-Factory's loader (OmegaConf) gives them, which is YAML 1.1 plus
// exponents without a dot: 1e-4, 1.0e-4 and 2e-5 are floats, yes/no/on/off are booleans, a quoted
// scalar is text.
#ifndef EVERSTEP_WORKER_CONFIG_TRAINING_FILE_H_
#define EVERSTEP_WORKER_CONFIG_TRAINING_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "worker/config/train_config.h"

namespace everstep {

inline constexpr size_t kMaxTrainingFileBytes = 1 << 20;
// Bounds what aliases (`*name`) can expand to.
inline constexpr int kMaxTrainingFileValues = 100000;
inline constexpr int kMaxTrainingFileDepth = 32;

struct Problem {
  int line = 0;  // 0 = of the file as a whole
  std::string text;
};

struct TrainingFileEntry {
  std::string key;
  int line = 0;
  Json value;
  std::string written;  // a scalar as it stands in the file, for messages and text values
  bool failed = false;  // its value could not be had (and is null); the problem is recorded
};

struct TrainingFile {
  std::vector<TrainingFileEntry> entries;
  std::vector<Problem> problems;  // duplicate keys, keys that are no text, unresolved ${...}

  const TrainingFileEntry* Find(std::string_view key) const;
};

// The value of a plain (unquoted) YAML scalar.
Json ResolvePlainScalar(const std::string& text);

// Fails when nothing can be read at all: malformed YAML, no mapping, too large.
Result<TrainingFile> ReadTrainingFile(std::string_view text, std::string_view source,
                                      const EnvironmentLookup& environment);
Result<TrainingFile> ReadTrainingFile(const YAML::Node& mapping, std::string_view source,
                                      const EnvironmentLookup& environment);

// "train.yaml:7: text", a line each, ordered by line; those without a line come last.
std::string FormatProblems(std::vector<Problem> problems, std::string_view source);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CONFIG_TRAINING_FILE_H_
