#include "operator/api/conditions.h"

namespace everstep {

void SetCondition(OrderedJson& status, const Condition& condition, int64_t observed_generation,
                  WallTime now) {
  OrderedJson& conditions = status["conditions"];
  if (!conditions.is_array()) conditions = OrderedJson::array();
  OrderedJson* entry = nullptr;
  for (OrderedJson& candidate : conditions) {
    if (candidate["type"] == condition.type) entry = &candidate;
  }
  if (entry == nullptr) {
    conditions.push_back({{"type", condition.type}});
    entry = &conditions.back();
  }
  const std::string value = condition.status ? "True" : "False";
  if (!entry->contains("status") || (*entry)["status"] != value) {
    (*entry)["lastTransitionTime"] = FormatTime(now);
  }
  (*entry)["status"] = value;
  (*entry)["reason"] = condition.reason;
  (*entry)["message"] = condition.message;
  (*entry)["observedGeneration"] = observed_generation;
}

bool HasCondition(const OrderedJson& status, const std::string& type) {
  if (!status.contains("conditions")) return false;
  for (const OrderedJson& entry : status["conditions"]) {
    if (entry["type"] == type) return entry["status"] == "True";
  }
  return false;
}

}  // namespace everstep
