#include "operator/api/object_key.h"

namespace everstep {

std::string MakeKey(std::string_view namespace_name, std::string_view name) {
  std::string key(namespace_name);
  if (!key.empty()) key += '/';
  return key.append(name);
}

std::string KeyOf(const OrderedJson& object) {
  const OrderedJson& metadata = object["metadata"];
  return MakeKey(metadata.value("namespace", ""), metadata["name"].get<std::string>());
}

std::string NamespaceOf(std::string_view key) {
  const size_t slash = key.find('/');
  return std::string(key.substr(0, slash == std::string_view::npos ? 0 : slash));
}

std::string NameOf(std::string_view key) {
  const size_t slash = key.find('/');
  return std::string(slash == std::string_view::npos ? key : key.substr(slash + 1));
}

std::string KeyBeside(std::string_view key, std::string_view name) {
  return MakeKey(NamespaceOf(key), name);
}

}  // namespace everstep
