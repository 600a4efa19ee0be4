#include "operator/api/yaml_text.h"

#include <algorithm>
#include <set>

namespace everstep {
namespace {

// Plain words cannot be taken for a number, a boolean, null or syntax.
bool IsPlain(const std::string& text) {
  static const std::set<std::string> kWords{"true", "false", "null", "yes", "no",
                                            "on",   "off",   "y",    "n",   "~"};
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text.empty() || kWords.contains(lower)) return false;
  if (std::isalpha(static_cast<unsigned char>(text.front())) == 0 && text.front() != '/') {
    return false;
  }
  return text.back() != ' ' && std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == ' ' || c == '.' || c == '-' || c == '_' || c == '/';
         });
}

// JSON's quoted text is YAML's as well.
std::string Scalar(const OrderedJson& value) {
  if (value.is_string() && IsPlain(value.get<std::string>())) return value.get<std::string>();
  return DumpJson(value);
}

bool IsBlock(const OrderedJson& value) { return value.is_structured() && !value.empty(); }

void Write(const OrderedJson& value, const std::string& indent, std::string& text) {
  // What stands behind "key:" or "-".
  const auto behind = [&](const OrderedJson& entry, const std::string& deeper) {
    if (!IsBlock(entry)) {
      text += " " + Scalar(entry) + "\n";
    } else {
      text += "\n";
      Write(entry, deeper, text);
    }
  };
  if (value.is_object()) {
    for (const auto& [key, entry] : value.items()) {
      text += indent + Scalar(key) + ":";
      behind(entry, indent + (entry.is_array() ? "" : "  "));
    }
    return;
  }
  for (const OrderedJson& entry : value) {
    const size_t start = text.size();
    if (!IsBlock(entry)) {
      text += indent + "- " + Scalar(entry) + "\n";
      continue;
    }
    Write(entry, indent + "  ", text);
    text[start + indent.size()] = '-';
  }
}

}  // namespace

std::string YamlText(const OrderedJson& value) {
  std::string text;
  Write(value, "", text);
  return text;
}

}  // namespace everstep
