// The kinds of objects that the operator deals with, and their paths in Kubernetes' API.
#ifndef EVERSTEP_OPERATOR_KUBE_RESOURCE_H_
#define EVERSTEP_OPERATOR_KUBE_RESOURCE_H_

#include <string>
#include <string_view>

namespace everstep::kube {

struct ResourceType {
  std::string_view api_version;  // "v1", "everstep.dev/v1alpha1"
  std::string_view kind;         // "Pod"
  std::string_view plural;       // "pods"
  bool namespaced = true;
};

inline constexpr ResourceType kTrainingJobs{"everstep.dev/v1alpha1", "TrainingJob", "trainingjobs"};
inline constexpr ResourceType kPods{"v1", "Pod", "pods"};
inline constexpr ResourceType kServices{"v1", "Service", "services"};
inline constexpr ResourceType kConfigMaps{"v1", "ConfigMap", "configmaps"};
inline constexpr ResourceType kSecrets{"v1", "Secret", "secrets"};
inline constexpr ResourceType kClaims{"v1", "PersistentVolumeClaim", "persistentvolumeclaims"};
inline constexpr ResourceType kNetworkPolicies{"networking.k8s.io/v1", "NetworkPolicy",
                                               "networkpolicies"};
inline constexpr ResourceType kLeases{"coordination.k8s.io/v1", "Lease", "leases"};
inline constexpr ResourceType kEvents{"events.k8s.io/v1", "Event", "events"};
inline constexpr ResourceType kNodes{"v1", "Node", "nodes", false};
inline constexpr ResourceType kTokenReviews{"authentication.k8s.io/v1", "TokenReview",
                                            "tokenreviews", false};

// "/api/v1/namespaces/a/pods/b", "/apis/everstep.dev/v1alpha1/trainingjobs". An empty namespace
// means all of them, an empty name the collection. The caller's names are valid DNS names.
std::string ResourcePath(const ResourceType& type, std::string_view namespace_name,
                         std::string_view name = "", std::string_view subresource = "");

}  // namespace everstep::kube

#endif  // EVERSTEP_OPERATOR_KUBE_RESOURCE_H_
