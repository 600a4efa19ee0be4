// JSON with errors as values. Parsing never throws; a parse error names the line.
#ifndef EVERSTEP_COMMON_JSON_H_
#define EVERSTEP_COMMON_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "common/result.h"

namespace everstep {

using Json = nlohmann::json;
// Keeps the order in which keys were set: for files that people read.
using OrderedJson = nlohmann::ordered_json;

// `source` (a file name) starts the error message: "data.json:12: malformed JSON: ...".
Result<Json> ParseJson(std::string_view text, std::string_view source);
Result<OrderedJson> ParseOrderedJson(std::string_view text, std::string_view source);

// One line without spaces. Invalid UTF-8 is replaced, never thrown on.
template <typename AnyJson>
std::string DumpJson(const AnyJson& value, int indent = -1) {
  return value.dump(indent, ' ', false, AnyJson::error_handler_t::replace);
}

// Typed access for messages of our own: the value of `key`, or `fallback` when it is absent, of
// another type (a fraction where T is whole), or beyond what T holds.
template <typename T>
T JsonValue(const Json& object, std::string_view key, T fallback) {
  if (!object.is_object()) return fallback;
  const auto it = object.find(std::string(key));
  if (it == object.end()) return fallback;
  if constexpr (std::is_same_v<T, bool>) {
    return it->is_boolean() ? it->get<bool>() : fallback;
  } else if constexpr (std::is_integral_v<T>) {
    if (it->is_number_unsigned()) {
      const auto value = it->get<uint64_t>();
      return std::in_range<T>(value) ? static_cast<T>(value) : fallback;
    }
    if (!it->is_number_integer()) return fallback;
    const auto value = it->get<int64_t>();
    return std::in_range<T>(value) ? static_cast<T>(value) : fallback;
  } else if constexpr (std::is_floating_point_v<T>) {
    return it->is_number() ? it->get<T>() : fallback;
  } else {
    return it->is_string() ? T(it->get<std::string>()) : fallback;
  }
}

}  // namespace everstep

#endif  // EVERSTEP_COMMON_JSON_H_
