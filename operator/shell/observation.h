// What the core has to know of an object, read from its JSON. Every field may be absent: objects
// come from a server that other versions and other programs write to.
#ifndef EVERSTEP_OPERATOR_SHELL_OBSERVATION_H_
#define EVERSTEP_OPERATOR_SHELL_OBSERVATION_H_

#include <string>

#include "common/json.h"
#include "operator/core/reconcile.h"

namespace everstep {

PodView ViewOfPod(const OrderedJson& pod);
ClaimView ViewOfClaim(const OrderedJson& claim);

// Somebody is taking the pod away: it is being deleted, or its node drained or given to another.
bool IsBeingTakenAway(const OrderedJson& pod);

// Not an object of an earlier job of the same name.
bool IsOwnedBy(const OrderedJson& object, const std::string& uid);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_SHELL_OBSERVATION_H_
