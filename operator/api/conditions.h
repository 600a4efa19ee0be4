// Kubernetes conditions: set and found by type, with transition times that change only when the
// status does. Pure.
#ifndef EVERSTEP_OPERATOR_API_CONDITIONS_H_
#define EVERSTEP_OPERATOR_API_CONDITIONS_H_

#include <string>

#include "common/clock.h"
#include "common/json.h"

namespace everstep {

struct Condition {
  std::string type;  // "Running"
  bool status = false;
  std::string reason;   // CamelCase
  std::string message;  // for people
};

// `status` is the object's status; its "conditions" is created when absent.
void SetCondition(OrderedJson& status, const Condition& condition, int64_t observed_generation,
                  WallTime now);
bool HasCondition(const OrderedJson& status, const std::string& type);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_API_CONDITIONS_H_
