#include "operator/local/pod_environment.h"

#include "operator/api/names.h"

namespace everstep {
namespace {

Result<OrderedJson> WorkerContainer(const OrderedJson& pod) {
  for (const OrderedJson& container : pod["spec"]["containers"]) {
    if (container.value("name", "") == names::kWorkerContainer) return container;
  }
  return InvalidArgument("the pod has no container named 'worker'");
}

std::string Translate(const std::string& value, const OrderedJson& container,
                      const PodVolumes& volumes, const ResolveContext& context) {
  if (const auto host = context.hosts.find(value); host != context.hosts.end()) {
    return host->second;
  }
  if (!container.contains("volumeMounts")) return value;
  for (const OrderedJson& mount : container["volumeMounts"]) {
    const std::string path = mount.value("mountPath", "");
    const auto directory = volumes.directories.find(mount.value("name", ""));
    if (path.empty() || directory == volumes.directories.end()) continue;
    if (value == path || value.starts_with(path + "/")) {
      return directory->second + value.substr(path.size());
    }
  }
  return value;
}

}  // namespace

std::string PodAddress(int replica) {
  // 254 addresses a net, then the next one.
  return "127.0." + std::to_string(1 + replica / 254) + "." + std::to_string(1 + replica % 254);
}

Result<std::map<std::string, std::string>> ResolveEnvironment(const OrderedJson& pod,
                                                              const PodVolumes& volumes,
                                                              const ResolveContext& context) {
  ASSIGN_OR_RETURN(const OrderedJson container, WorkerContainer(pod));
  std::map<std::string, std::string> environment;
  if (!container.contains("env")) return environment;
  for (const OrderedJson& entry : container["env"]) {
    const std::string name = entry.value("name", "");
    if (!entry.contains("valueFrom")) {
      environment[name] = Translate(entry.value("value", ""), container, volumes, context);
      continue;
    }
    const OrderedJson& source = entry["valueFrom"];
    const std::string field =
        source.contains("fieldRef") ? source["fieldRef"].value("fieldPath", "") : "";
    if (field == "status.podIP") {
      environment[name] = context.address;
    } else if (field == "spec.nodeName") {
      environment[name] = context.node;
    } else {
      return InvalidArgument("spec.env: " + name +
                             ": valueFrom is not available without a cluster: give a value");
    }
  }
  return environment;
}

Result<std::vector<std::string>> WorkerCommand(const OrderedJson& pod) {
  ASSIGN_OR_RETURN(const OrderedJson container, WorkerContainer(pod));
  return container.value("command", std::vector<std::string>{});
}

}  // namespace everstep
