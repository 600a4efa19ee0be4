#include "common/json.h"

#include <algorithm>

namespace everstep {
namespace {

template <typename AnyJson>
Result<AnyJson> Parse(std::string_view text, std::string_view source) {
  // The only throwing call: turned into a value here, with the line that people look for.
  try {
    return AnyJson::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    const size_t end = std::min<size_t>(e.byte, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<long>(end), '\n');
    std::string what = e.what();
    if (const size_t colon = what.find("syntax error"); colon != std::string::npos) {
      what = what.substr(colon);
    }
    return InvalidArgument(std::string(source) + ":" + std::to_string(line) +
                           ": malformed JSON: " + what);
  }
}

}  // namespace

Result<Json> ParseJson(std::string_view text, std::string_view source) {
  return Parse<Json>(text, source);
}

Result<OrderedJson> ParseOrderedJson(std::string_view text, std::string_view source) {
  return Parse<OrderedJson>(text, source);
}

}  // namespace everstep
