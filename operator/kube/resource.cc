#include "operator/kube/resource.h"

namespace everstep::kube {

std::string ResourcePath(const ResourceType& type, std::string_view namespace_name,
                         std::string_view name, std::string_view subresource) {
  // The core group has no name, and a root of its own.
  std::string path = type.api_version.find('/') == std::string_view::npos ? "/api/" : "/apis/";
  path += type.api_version;
  if (type.namespaced && !namespace_name.empty()) {
    path += "/namespaces/";
    path += namespace_name;
  }
  for (const std::string_view part : {type.plural, name, subresource}) {
    if (part.empty()) continue;
    path += '/';
    path += part;
  }
  return path;
}

}  // namespace everstep::kube
