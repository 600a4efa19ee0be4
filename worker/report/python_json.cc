#include "worker/report/python_json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace everstep {
namespace {

// Long enough for the largest double in fixed notation with digits behind the point.
constexpr size_t kFixedChars = 400;

// "-1.25e-07" from to_chars -> digits "125" and the decimal exponent -7.
struct Decimal {
  bool negative = false;
  std::string digits;
  int exponent = 0;
};

Decimal ShortestDecimal(double value) {
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific)
                       .ptr;
  Decimal decimal;
  const std::string text(buffer.data(), end);
  const size_t e = text.find('e');
  for (char c : text.substr(0, e)) {
    if (c == '-') decimal.negative = true;
    if (c >= '0' && c <= '9') decimal.digits += c;
  }
  decimal.exponent = std::atoi(text.c_str() + e + 1);
  return decimal;
}

void Append(const OrderedJson& value, int indent, int depth, std::string& out);

// Starts the next element of an array or object.
void Separate(bool first, int indent, int depth, std::string& out) {
  if (!first) out += indent > 0 ? "," : ", ";
  if (indent > 0) out += "\n" + std::string(static_cast<size_t>(indent * depth), ' ');
}

template <typename Container, typename Each>
void AppendContainer(const Container& container, const char* brackets, int indent, int depth,
                     std::string& out, Each each) {
  out += brackets[0];
  bool first = true;
  for (auto it = container.begin(); it != container.end(); ++it) {
    Separate(first, indent, depth + 1, out);
    first = false;
    each(it);
  }
  if (!first && indent > 0) out += "\n" + std::string(static_cast<size_t>(indent * depth), ' ');
  out += brackets[1];
}

void Append(const OrderedJson& value, int indent, int depth, std::string& out) {
  const auto text = [](const OrderedJson& string) {
    return string.dump(-1, ' ', true, OrderedJson::error_handler_t::replace);
  };
  if (value.is_object()) {
    AppendContainer(value, "{}", indent, depth, out, [&](auto it) {
      out += text(it.key()) + ": ";
      Append(it.value(), indent, depth + 1, out);
    });
  } else if (value.is_array()) {
    AppendContainer(value, "[]", indent, depth, out,
                    [&](auto it) { Append(*it, indent, depth + 1, out); });
  } else if (value.is_number_float()) {
    out += PythonFloat(value.get<double>());
  } else {
    out += text(value);
  }
}

}  // namespace

std::string PythonFloat(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  Decimal decimal = ShortestDecimal(value);
  std::string& digits = decimal.digits;
  const std::string sign = decimal.negative ? "-" : "";
  if (decimal.exponent < -4 || decimal.exponent >= 16) {
    if (digits.size() > 1) digits.insert(1, ".");
    const int magnitude = std::abs(decimal.exponent);
    return sign + digits + (decimal.exponent < 0 ? "e-" : "e+") + (magnitude < 10 ? "0" : "") +
           std::to_string(magnitude);
  }
  if (decimal.exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-decimal.exponent - 1), '0') + digits;
  }
  const auto point = static_cast<size_t>(decimal.exponent) + 1;
  if (digits.size() <= point) return sign + digits + std::string(point - digits.size(), '0') + ".0";
  return sign + digits.insert(point, ".");
}

double PythonRound(double value, int digits) {
  if (!std::isfinite(value)) return value;
  std::array<char, kFixedChars> buffer;
  char* const last = buffer.data() + buffer.size();
  const auto end = std::to_chars(buffer.data(), last, value, std::chars_format::fixed, digits).ptr;
  double rounded = value;
  std::from_chars(buffer.data(), end, rounded);
  return rounded;
}

std::string PythonJson(const OrderedJson& value, int indent) {
  std::string out;
  Append(value, indent, 0, out);
  return out;
}

}  // namespace everstep
