// What has to hold between the fields of a TrainingJob, said twice side by side: as CEL for the API
// server, and as a function for `everstep validate`. The CRD and the manifest checks are made from
// these.
#ifndef EVERSTEP_OPERATOR_API_JOB_RULES_H_
#define EVERSTEP_OPERATOR_API_JOB_RULES_H_

#include <span>
#include <string>
#include <string_view>

#include "operator/api/training_job.h"

namespace everstep {

// Processes of a job at full strength.
inline constexpr int kMaxWorldSize = 16384;

struct JobRule {
  std::string_view path;     // the field to blame: "spec.elastic.minReplicas"
  std::string_view cel;      // over the spec, defaults filled in; true when all is well
  std::string_view message;  // the API server's, after the path
  // What is wrong, with the values; "" when all is well.
  std::string (*complaint)(const TrainingJobSpec& spec);
};
std::span<const JobRule> JobRules();

// The same for each entry of spec.env.
struct EnvRule {
  std::string_view cel;
  std::string_view message;
  bool (*holds)(const OrderedJson& entry);
};
std::span<const EnvRule> EnvRules();

// And for the job's name.
struct NameRule {
  std::string_view cel;
  std::string_view message;
  std::string (*complaint)(const std::string& name);
};
std::span<const NameRule> NameRules();

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_API_JOB_RULES_H_
