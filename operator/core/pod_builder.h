// The objects that a job is made of, as JSON. Pure.
#ifndef EVERSTEP_OPERATOR_CORE_POD_BUILDER_H_
#define EVERSTEP_OPERATOR_CORE_POD_BUILDER_H_

#include <string>

#include "common/json.h"
#include "operator/api/training_job.h"

namespace everstep {

// What the pods of a job need to know beside its spec.
struct PodContext {
  std::string rendezvous;  // host:port
  std::string token;       // the job's secret
  int threads_per_process = 1;
  // No checkpoint is recorded and no generation has been formed: overwrite_output_dir counts.
  bool first_start = true;
};

// spec.template lies underneath: its lists of env, volumeMounts and volumes come before the job's,
// which win.
OrderedJson BuildPod(const TrainingJob& job, int replica, int incarnation,
                     const PodContext& context);
// Holds the inline training file.
OrderedJson BuildTrainConfigMap(const TrainingJob& job);
// Gives the pods their DNS names.
OrderedJson BuildService(const TrainingJob& job);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CORE_POD_BUILDER_H_
