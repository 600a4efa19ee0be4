// Objects for the tests of the embedded default.
#ifndef EVERSTEP_TESTS_UNIT_OPERATOR_LOCAL_POD_OBJECTS_H_
#define EVERSTEP_TESTS_UNIT_OPERATOR_LOCAL_POD_OBJECTS_H_

#include <string>
#include <vector>

#include "common/json.h"
#include "operator/api/names.h"

namespace everstep {

inline OrderedJson MakeObject(const std::string& kind, const std::string& name) {
  return {{"apiVersion", "v1"},
          {"kind", kind},
          {"metadata", {{"name", name}}},
          {"spec", OrderedJson::object()}};
}

inline OrderedJson OwnedBy(OrderedJson object, const OrderedJson& owner) {
  object["metadata"]["ownerReferences"] = OrderedJson::array();
  object["metadata"]["ownerReferences"].push_back(
      {{"kind", owner["kind"]}, {"uid", owner["metadata"]["uid"]}});
  return object;
}

inline OrderedJson MakePod(const std::string& name, const std::vector<std::string>& command,
                           int replica = 0) {
  OrderedJson pod = MakeObject("Pod", name);
  pod["metadata"]["labels"] = {{names::kJobLabel, "job"},
                               {names::kReplicaLabel, std::to_string(replica)}};
  pod["spec"]["hostname"] = "job-" + std::to_string(replica);
  pod["spec"]["subdomain"] = "job";
  pod["spec"]["containers"] = OrderedJson::array();
  pod["spec"]["containers"].push_back({{"name", names::kWorkerContainer},
                                       {"command", command},
                                       {"env", OrderedJson::array()},
                                       {"volumeMounts", OrderedJson::array()}});
  return pod;
}

inline void AddEnv(OrderedJson& pod, const std::string& name, const std::string& value) {
  pod["spec"]["containers"][0]["env"].push_back({{"name", name}, {"value", value}});
}

inline void AddField(OrderedJson& pod, const std::string& name, const std::string& field) {
  pod["spec"]["containers"][0]["env"].push_back(
      {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", field}}}}}});
}

inline void AddMount(OrderedJson& pod, const std::string& volume, const std::string& path) {
  pod["spec"]["containers"][0]["volumeMounts"].push_back({{"name", volume}, {"mountPath", path}});
}

}  // namespace everstep

#endif  // EVERSTEP_TESTS_UNIT_OPERATOR_LOCAL_POD_OBJECTS_H_
