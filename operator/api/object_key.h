// The key of an object among those of its kind: "namespace/name", or "name" alone where there are
// no namespaces (the embedded default).
#ifndef EVERSTEP_OPERATOR_API_OBJECT_KEY_H_
#define EVERSTEP_OPERATOR_API_OBJECT_KEY_H_

#include <string>
#include <string_view>

#include "common/json.h"

namespace everstep {

std::string MakeKey(std::string_view namespace_name, std::string_view name);
// Of an object with metadata.name.
std::string KeyOf(const OrderedJson& object);
std::string NamespaceOf(std::string_view key);  // "" without one
std::string NameOf(std::string_view key);
// The key of `name` in the namespace of `key`.
std::string KeyBeside(std::string_view key, std::string_view name);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_API_OBJECT_KEY_H_
