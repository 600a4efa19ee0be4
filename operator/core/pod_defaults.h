// What every pod of a job has on a cluster, underneath what its owner wishes. Pure.
#ifndef EVERSTEP_OPERATOR_CORE_POD_DEFAULTS_H_
#define EVERSTEP_OPERATOR_CORE_POD_DEFAULTS_H_

#include <string>
#include <vector>

#include "common/json.h"

namespace everstep {

// Each keeps what the pod's spec says already.

// Fit for the Pod Security Standard "restricted"; no access to the API.
void RestrictPod(OrderedJson& pod_spec);
void RestrictContainer(OrderedJson& container);

// Shared memory as large as the pod's memory: the 64 MiB of a container's own end in bus errors.
void AddSharedMemory(OrderedJson& pod_spec, OrderedJson& container);

// A pod on a node that is gone is given up after 30 s, not after Kubernetes' five minutes.
void TolerateLostNodesBriefly(OrderedJson& pod_spec);

// No pod on an `excluded` node, and none on an `avoided` one if there is another.
void KeepOffNodes(OrderedJson& pod_spec, const std::vector<std::string>& excluded,
                  const std::vector<std::string>& avoided);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CORE_POD_DEFAULTS_H_
