#include "operator/api/document.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

namespace everstep {
namespace {

std::optional<OrderedJson> ParseNumber(const std::string& text) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  int64_t integer = 0;
  if (auto [at, error] = std::from_chars(begin, end, integer); error == std::errc() && at == end) {
    return OrderedJson(integer);
  }
  // from_chars also takes "inf" and "nan", which YAML writes with a dot.
  const char* digits = begin != end && *begin == '-' ? begin + 1 : begin;
  if (digits == end || std::isalpha(static_cast<unsigned char>(*digits)) != 0) return std::nullopt;
  double number = 0;
  if (auto [at, error] = std::from_chars(begin, end, number); error == std::errc() && at == end) {
    return OrderedJson(number);
  }
  return std::nullopt;
}

OrderedJson ParseScalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    return nullptr;
  }
  if (const auto number = ParseNumber(text)) return *number;
  return text;
}

class Converter {
 public:
  explicit Converter(Document& document) : document_(document) {}

  Result<OrderedJson> Convert(const YAML::Node& node, const std::string& path, int depth) {
    constexpr int kMaxDepth = 64;
    constexpr int kMaxValues = 100'000;
    const int line = node.Mark().line + 1;
    if (depth > kMaxDepth) return Problem(line, "is nested more than 64 levels deep");
    // Aliases of aliases grow without a bound.
    if (++values_ > kMaxValues) return Problem(line, "holds more than 100000 values");
    if (!document_.lines.contains(path)) document_.lines[path] = node.Mark().line + 1;
    if (node.IsMap()) return ConvertMap(node, path, depth);
    if (node.IsSequence()) {
      OrderedJson array = OrderedJson::array();
      for (size_t i = 0; i < node.size(); ++i) {
        ASSIGN_OR_RETURN(OrderedJson item,
                         Convert(node[i], path + "[" + std::to_string(i) + "]", depth + 1));
        array.push_back(std::move(item));
      }
      return array;
    }
    return node.IsScalar() ? ParseScalar(node) : OrderedJson(nullptr);
  }

 private:
  Result<OrderedJson> ConvertMap(const YAML::Node& node, const std::string& path, int depth) {
    OrderedJson object = OrderedJson::object();
    for (const auto& entry : node) {
      const int line = entry.first.Mark().line + 1;
      if (!entry.first.IsScalar()) return Problem(line, "a key must be text");
      const std::string key = entry.first.Scalar();
      const std::string child = path.empty() ? key : path + "." + key;
      if (object.contains(key)) {
        return Problem(line, child + ": is given twice (first in line " +
                                 std::to_string(document_.lines[child]) + "): remove one");
      }
      document_.lines[child] = line;
      ASSIGN_OR_RETURN(object[key], Convert(entry.second, child, depth + 1));
    }
    return object;
  }

  tl::unexpected<Error> Problem(int line, const std::string& what) const {
    return InvalidArgument(document_.source + ":" + std::to_string(line) + ": " + what);
  }

  Document& document_;
  int values_ = 0;
};

}  // namespace

std::string Document::Where(const std::string& path) const {
  std::string at = path;
  while (true) {
    if (const auto found = lines.find(at); found != lines.end()) {
      return source + ":" + std::to_string(found->second) + ": ";
    }
    const size_t cut = at.find_last_of(".[");
    if (cut == std::string::npos) return source + ": ";
    at.resize(cut);
  }
}

Result<Document> ParseDocument(std::string_view text, const std::string& source) {
  Document document;
  document.source = source;
  try {
    const std::vector<YAML::Node> nodes = YAML::LoadAll(std::string(text));
    if (nodes.empty() || (nodes.size() == 1 && nodes.front().IsNull())) {
      return InvalidArgument(source + ": is empty: a TrainingJob is needed");
    }
    if (nodes.size() > 1) {
      return InvalidArgument(source + ": holds " + std::to_string(nodes.size()) +
                             " documents: give one TrainingJob a file");
    }
    if (!nodes.front().IsMap()) {
      return InvalidArgument(source + ":1: is not a mapping: it starts with apiVersion");
    }
    ASSIGN_OR_RETURN(document.value, Converter(document).Convert(nodes.front(), "", 0));
  } catch (const YAML::Exception& e) {
    const std::string line = e.mark.is_null() ? "" : ":" + std::to_string(e.mark.line + 1);
    return InvalidArgument(source + line + ": malformed YAML: " + e.msg);
  }
  return document;
}

}  // namespace everstep
