// Every derived name, label and environment variable, in one place.
#ifndef EVERSTEP_OPERATOR_API_NAMES_H_
#define EVERSTEP_OPERATOR_API_NAMES_H_

#include <string>

namespace everstep::names {

inline constexpr char kApiVersion[] = "everstep.dev/v1alpha1";
inline constexpr char kKind[] = "TrainingJob";

inline constexpr char kJobLabel[] = "everstep.dev/job";
inline constexpr char kReplicaLabel[] = "everstep.dev/replica";
inline constexpr char kIncarnationLabel[] = "everstep.dev/incarnation";

inline constexpr char kWorkerContainer[] = "worker";
inline constexpr char kTrainFileKey[] = "train.yaml";
inline constexpr char kTrainMountPath[] = "/etc/everstep";
inline constexpr char kDefaultCheckpointPath[] = "/checkpoints";

// A pod's name adds "-<replica>-<incarnation>"; it is also a host name of 63 characters at most.
inline constexpr int kMaxJobNameLength = 49;

inline std::string Pod(const std::string& job, int replica, int incarnation) {
  return job + "-" + std::to_string(replica) + "-" + std::to_string(incarnation);
}
// The same for every incarnation: others may have it in their environment.
inline std::string HostName(const std::string& job, int replica) {
  return job + "-" + std::to_string(replica);
}
inline std::string TrainConfigMap(const std::string& job) { return job + "-train"; }
inline std::string NetworkPolicy(const std::string& job) { return job; }
inline std::string Service(const std::string& job) { return job; }

}  // namespace everstep::names

#endif  // EVERSTEP_OPERATOR_API_NAMES_H_
