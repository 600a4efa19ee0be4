// How the operator was told to run: flags, and what Kubernetes puts into its environment.
#ifndef EVERSTEP_OPERATOR_MANAGER_OPTIONS_H_
#define EVERSTEP_OPERATOR_MANAGER_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace everstep {

struct ManagerOptions {
  std::vector<std::string> namespaces;  // watched; none = all
  std::string kubeconfig;               // "" = the pod's own account
  bool leader_elect = false;
  std::string system_namespace;  // the operator's own; POD_NAMESPACE
  std::string pod_name;          // POD_NAME; "" outside of a cluster
  std::string pod_ip;            // POD_IP
  uint16_t rendezvous_port = 29400;
  // Where pods find rendezvous, as host:port; "" = the address of the Service `rendezvous_service`,
  // or this pod's.
  std::string rendezvous_address;
  std::string rendezvous_service = "everstep-rendezvous";
  uint16_t health_port = 8081;
  std::string worker_image;
  std::string supervisor_image;
  int workers = 4;
  int status_threads = 8;
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_MANAGER_OPTIONS_H_
