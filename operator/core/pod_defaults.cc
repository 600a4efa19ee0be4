#include "operator/core/pod_defaults.h"

#include <algorithm>
#include <utility>

namespace everstep {
namespace {

constexpr char kHostNameLabel[] = "kubernetes.io/hostname";
constexpr int kLostNodeSeconds = 30;

void SetDefault(OrderedJson& object, const char* key, OrderedJson value) {
  if (!object.is_object()) object = OrderedJson::object();
  if (!object.contains(key)) object[key] = std::move(value);
}

template <typename Predicate>
bool AnyOf(const OrderedJson& object, const char* list, Predicate predicate) {
  const OrderedJson entries = object.value(list, OrderedJson::array());
  return std::any_of(entries.begin(), entries.end(), predicate);
}

OrderedJson NotOn(const std::vector<std::string>& nodes) {
  OrderedJson expression = {{"key", kHostNameLabel}, {"operator", "NotIn"}, {"values", nodes}};
  return {{"matchExpressions", OrderedJson::array({expression})}};
}

}  // namespace

void RestrictPod(OrderedJson& pod_spec) {
  OrderedJson& security = pod_spec["securityContext"];
  SetDefault(security, "runAsNonRoot", true);
  SetDefault(security, "seccompProfile", {{"type", "RuntimeDefault"}});
  SetDefault(pod_spec, "automountServiceAccountToken", false);
  // A namespace with many Services would fill the environment.
  SetDefault(pod_spec, "enableServiceLinks", false);
}

void RestrictContainer(OrderedJson& container) {
  OrderedJson& security = container["securityContext"];
  SetDefault(security, "allowPrivilegeEscalation", false);
  SetDefault(security, "capabilities", {{"drop", OrderedJson::array({"ALL"})}});
}

void AddSharedMemory(OrderedJson& pod_spec, OrderedJson& container) {
  static constexpr char kName[] = "shared-memory", kPath[] = "/dev/shm";
  const bool mounted = AnyOf(container, "volumeMounts", [](const OrderedJson& mount) {
    return mount.value("mountPath", "") == kPath;
  });
  if (mounted) return;
  pod_spec["volumes"].push_back({{"name", kName}, {"emptyDir", {{"medium", "Memory"}}}});
  container["volumeMounts"].push_back({{"name", kName}, {"mountPath", kPath}});
}

void TolerateLostNodesBriefly(OrderedJson& pod_spec) {
  for (const char* key : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    const bool said = AnyOf(pod_spec, "tolerations", [&](const OrderedJson& toleration) {
      return toleration.value("key", "") == key;
    });
    if (said) continue;
    pod_spec["tolerations"].push_back({{"key", key},
                                       {"operator", "Exists"},
                                       {"effect", "NoExecute"},
                                       {"tolerationSeconds", kLostNodeSeconds}});
  }
}

void KeepOffNodes(OrderedJson& pod_spec, const std::vector<std::string>& excluded,
                  const std::vector<std::string>& avoided) {
  if (excluded.empty() && avoided.empty()) return;
  OrderedJson& affinity = pod_spec["affinity"]["nodeAffinity"];
  if (!excluded.empty()) {
    OrderedJson& terms =
        affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    // One of the terms has to fit: the exclusion joins each of them.
    if (terms.empty()) terms.push_back(OrderedJson::object());
    for (OrderedJson& term : terms) {
      term["matchExpressions"].push_back(NotOn(excluded)["matchExpressions"][0]);
    }
  }
  if (!avoided.empty()) {
    affinity["preferredDuringSchedulingIgnoredDuringExecution"].push_back(
        {{"weight", 100}, {"preference", NotOn(avoided)}});
  }
}

}  // namespace everstep
