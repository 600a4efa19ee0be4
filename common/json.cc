#include "common/json.h"

#include <algorithm>

namespace everstep {
namespace {

// Reads past everything and notes the first error. The exceptions of parse() will not do: the one
// for a number that is too large has no place.
class ErrorFinder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t bytes_read, const std::string&,
                   const nlohmann::detail::exception& e) override {
    last_byte = bytes_read == 0 ? 0 : bytes_read - 1;
    what = e.what();
    return false;
  }

  size_t last_byte = 0;  // index of the last one read, which did not fit
  std::string what;
};

// Its own prefix ("[json.exception...] parse error at line 1, column 2: ") says nothing more.
std::string WithoutPrefix(const std::string& what) {
  if (const size_t at = what.find("syntax error"); at != std::string::npos) return what.substr(at);
  const size_t end = what.find("] ");
  return end == std::string::npos ? what : what.substr(end + 2);
}

template <typename AnyJson>
Result<AnyJson> Parse(std::string_view text, std::string_view source) {
  // The only throwing call: turned into a value here, with the line that people look for.
  try {
    return AnyJson::parse(text);
  } catch (const nlohmann::json::exception&) {
    ErrorFinder error;
    Json::sax_parse(text, &error);
    const std::string_view before = text.substr(0, error.last_byte);
    return InvalidArgument(std::string(source) + ":" +
                           std::to_string(1 + std::ranges::count(before, '\n')) +
                           ": malformed JSON: " + WithoutPrefix(error.what));
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
