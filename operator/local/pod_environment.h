// What a pod's container sees when it is a process on this machine. Pure.
//
// There are no mounts and no cluster DNS here, so values of the environment are translated: a path
// below a volume's mount path becomes one below the directory that stands for the volume, and a
// pod's DNS name becomes its loopback address.
#ifndef EVERSTEP_OPERATOR_LOCAL_POD_ENVIRONMENT_H_
#define EVERSTEP_OPERATOR_LOCAL_POD_ENVIRONMENT_H_

#include <map>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace everstep {

// 127.0.1.1 for replica 0, and so on.
std::string PodAddress(int replica);

struct PodVolumes {
  // Volume name -> directory on this machine.
  std::map<std::string, std::string> directories;
};

struct ResolveContext {
  std::string address;  // of this pod
  std::string node;
  std::map<std::string, std::string> hosts;  // DNS name of a pod -> its address
};

// name -> value, of the container named "worker".
Result<std::map<std::string, std::string>> ResolveEnvironment(const OrderedJson& pod,
                                                              const PodVolumes& volumes,
                                                              const ResolveContext& context);
Result<std::vector<std::string>> WorkerCommand(const OrderedJson& pod);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_LOCAL_POD_ENVIRONMENT_H_
