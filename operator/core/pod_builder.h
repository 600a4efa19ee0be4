// The objects that a job is made of, as JSON. Pure.
#ifndef EVERSTEP_OPERATOR_CORE_POD_BUILDER_H_
#define EVERSTEP_OPERATOR_CORE_POD_BUILDER_H_

#include <string>

#include "common/json.h"
#include "operator/api/training_job.h"
#include "operator/core/node_strikes.h"

namespace everstep {

// What the pods of a job need to know beside its spec.
struct PodContext {
  std::string rendezvous = {};  // host:port
  // What the job's processes show each other, and rendezvous too where there are no certificates.
  // With them (PEM) pods talk TLS to it, expect `rendezvous_name` in its certificate and show their
  // service account's token for audience "everstep".
  std::string token = {};
  std::string rendezvous_ca = {};
  std::string rendezvous_name = {};
  std::string worker_image = {};  // where spec.image says nothing
  // Brings the supervisor into the images of programs of one's own; empty: they have it.
  std::string supervisor_image = {};
  int threads_per_process = 1;
  // No checkpoint is recorded and no generation has been formed: overwrite_output_dir counts.
  bool first_start = true;
  NodeVerdicts nodes = {};
};

// spec.template lies underneath: its lists of env, volumeMounts and volumes come before the job's,
// which win.
OrderedJson BuildPod(const TrainingJob& job, int replica, int incarnation,
                     const PodContext& context);
// Holds the inline training file.
OrderedJson BuildTrainConfigMap(const TrainingJob& job);
// Gives the pods their DNS names.
OrderedJson BuildService(const TrainingJob& job);
// Only the job's own pods reach its pods.
OrderedJson BuildNetworkPolicy(const TrainingJob& job);
// From spec.checkpoint.claimTemplate. Nobody owns it: what was trained outlives the job.
OrderedJson BuildClaim(const TrainingJob& job);
// The claim that the job's pods share.
std::string ClaimName(const TrainingJob& job);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CORE_POD_BUILDER_H_
