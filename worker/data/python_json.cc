#include "worker/data/python_json.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace everstep {
namespace {

// repr(float): the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
std::string FloatText(double value) {
  char digits[32];
  const double magnitude = std::fabs(value);
  const bool exponent = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto format = exponent ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(digits, digits + sizeof(digits), value, format);
  std::string text(digits, end.ptr);
  if (!exponent && text.find('.') == std::string::npos) text += ".0";
  return text;
}

struct Writer {
  std::string out;
  int indent = -1;  // below 0: everything in one line

  void NewLine(int depth) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent * depth), ' ');
  }
  void Separate(bool first) {
    if (first) return;
    out += indent < 0 ? ", " : ",";
  }

  // Recursion is bounded by the nesting of the parsed text.
  void Write(const OrderedJson& value, int depth) {
    if (value.is_object() && !value.empty()) {
      out += '{';
      bool first = true;
      for (const auto& [key, item] : value.items()) {
        Separate(first);
        first = false;
        NewLine(depth + 1);
        out += DumpJson(OrderedJson(key));
        out += ": ";
        Write(item, depth + 1);
      }
      NewLine(depth);
      out += '}';
    } else if (value.is_array() && !value.empty()) {
      out += '[';
      bool first = true;
      for (const OrderedJson& item : value) {
        Separate(first);
        first = false;
        NewLine(depth + 1);
        Write(item, depth + 1);
      }
      NewLine(depth);
      out += ']';
    } else if (value.is_number_float()) {
      out += FloatText(value.get<double>());
    } else {
      out += DumpJson(value);
    }
  }
};

}  // namespace

std::string PythonJsonUtf8(const OrderedJson& value) { return PythonJsonUtf8(value, -1); }

std::string PythonJsonUtf8(const OrderedJson& value, int indent) {
  Writer writer{.out = "", .indent = indent};
  writer.Write(value, 0);
  return std::move(writer.out);
}

}  // namespace everstep
