#include "worker/config/key_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/strings.h"
#include "worker/config/known_keys.h"

namespace everstep {
namespace {

// Doubles hold integers exactly up to 2^53.
constexpr double kMaxInteger = 9007199254740992.0;

std::string Shown(const TrainingFileEntry& entry, const Json& value) {
  if (value.is_string()) return "'" + value.get<std::string>() + "'";
  if (value.is_object()) return "a mapping";
  if (value.is_array()) return "a list";
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (&value == &entry.value && !entry.written.empty()) return entry.written;
  return DumpJson(value);
}

std::string DescribeRange(Range range) {
  const bool has_min = std::isfinite(range.min);
  const bool has_max = std::isfinite(range.max);
  const std::string min = FormatNumber(range.min);
  const std::string max = FormatNumber(range.max);
  if (has_min && has_max && !range.excludes_min && !range.excludes_max) {
    return "must be between " + min + " and " + max;
  }
  std::string text = "must be";
  if (has_min) text += (range.excludes_min ? " greater than " : " at least ") + min;
  if (has_min && has_max) text += " and";
  if (has_max) text += (range.excludes_max ? " below " : " at most ") + max;
  return text;
}

bool InRange(double value, Range range) {
  if (!std::isfinite(value)) return false;
  if (range.excludes_min ? value <= range.min : value < range.min) return false;
  return range.excludes_max ? value < range.max : value <= range.max;
}

}  // namespace

std::string FormatNumber(double value) {
  char text[64];
  const auto result = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, result.ptr);
}

KeyReader::KeyReader(const TrainingFile& file, std::vector<Problem>* problems)
    : file_(file), problems_(problems) {
  for (const TrainingFileEntry& entry : file.entries) {
    if (entry.failed) failed_.insert(entry.key);
  }
}

const TrainingFileEntry* KeyReader::Value(std::string_view key) {
  seen_.emplace(key);
  const TrainingFileEntry* entry = file_.Find(key);
  return entry == nullptr || entry->value.is_null() ? nullptr : entry;
}

bool KeyReader::Given(std::string_view key) const {
  const TrainingFileEntry* entry = file_.Find(key);
  return entry != nullptr && !entry->value.is_null();
}

bool KeyReader::GivenAsNull(std::string_view key) const {
  const TrainingFileEntry* entry = file_.Find(key);
  return entry != nullptr && entry->value.is_null();
}

void KeyReader::Fail(std::string_view key, std::string_view text) {
  failed_.emplace(key);
  const TrainingFileEntry* entry = file_.Find(key);
  problems_->push_back(
      {entry == nullptr ? 0 : entry->line, std::string(key) + ": " + std::string(text)});
}

void KeyReader::Bool(std::string_view key, std::optional<bool>* target) {
  const TrainingFileEntry* entry = Value(key);
  if (entry == nullptr) return;
  Json value = entry->value;
  if (value.is_string()) value = ResolvePlainScalar(value.get<std::string>());
  if (value.is_boolean()) {
    *target = value.get<bool>();
  } else if (value == 0 || value == 1) {
    *target = value == 1;
  } else {
    Fail(key, "must be true or false, is " + Shown(*entry, entry->value));
  }
}

void KeyReader::Bool(std::string_view key, bool* target) {
  std::optional<bool> value = *target;
  Bool(key, &value);
  *target = *value;
}

std::optional<double> KeyReader::ToNumber(const TrainingFileEntry& entry, const Json& value,
                                          Range range) {
  const Json number =
      value.is_string() ? ResolvePlainScalar(std::string(Trim(value.get<std::string>()))) : value;
  if (!number.is_number()) {
    Fail(entry.key, "must be a number, is " + Shown(entry, value));
    return std::nullopt;
  }
  const double result = number.get<double>();
  if (!InRange(result, range)) {
    Fail(entry.key, DescribeRange(range) + ", is " + Shown(entry, value));
    return std::nullopt;
  }
  return result;
}

void KeyReader::Number(std::string_view key, Range range, std::optional<double>* target) {
  const TrainingFileEntry* entry = Value(key);
  if (entry == nullptr) return;
  if (const auto value = ToNumber(*entry, entry->value, range)) *target = *value;
}

void KeyReader::Number(std::string_view key, Range range, double* target) {
  std::optional<double> value = *target;
  Number(key, range, &value);
  *target = *value;
}

void KeyReader::Integer(std::string_view key, Range range, std::optional<int64_t>* target) {
  std::optional<double> value;
  Number(key, range, &value);
  if (!value.has_value()) return;
  if (*value != std::floor(*value) || std::abs(*value) > kMaxInteger) {
    const TrainingFileEntry* entry = file_.Find(key);
    Fail(key, "must be a whole number, is " + Shown(*entry, entry->value));
    return;
  }
  *target = static_cast<int64_t>(*value);
}

void KeyReader::Integer(std::string_view key, Range range, int64_t* target) {
  std::optional<int64_t> value = *target;
  Integer(key, range, &value);
  *target = *value;
}

void KeyReader::Text(std::string_view key, std::string* target) {
  const TrainingFileEntry* entry = Value(key);
  if (entry == nullptr) return;
  if (entry->value.is_structured()) {
    Fail(key, "must be text, is " + Shown(*entry, entry->value));
  } else {
    *target = entry->value.is_string() ? entry->value.get<std::string>() : entry->written;
  }
}

void KeyReader::TextList(std::string_view key, std::vector<std::string>* target) {
  const TrainingFileEntry* entry = Value(key);
  if (entry == nullptr) return;
  if (entry->value.is_object()) {
    Fail(key, "must be a list, or names with commas between them, is a mapping");
    return;
  }
  if (!entry->value.is_array()) {
    *target = SplitAndTrim(
        entry->value.is_string() ? entry->value.get<std::string>() : entry->written, ',');
    return;
  }
  std::vector<std::string> items;
  for (const Json& item : entry->value) {
    if (item.is_structured() || item.is_null()) {
      Fail(key, "every item of the list must be text");
      return;
    }
    items.push_back(item.is_string() ? item.get<std::string>() : DumpJson(item));
  }
  *target = std::move(items);
}

void KeyReader::NumberList(std::string_view key, Range range, std::vector<double>* target) {
  std::vector<std::string> texts;
  TextList(key, &texts);
  const TrainingFileEntry* entry = file_.Find(key);
  std::vector<double> numbers;
  for (const std::string& text : texts) {
    const auto number = ToNumber(*entry, Json(text), range);
    if (!number.has_value()) return;
    numbers.push_back(*number);
  }
  if (!texts.empty()) *target = std::move(numbers);
}

void KeyReader::Object(std::string_view key, Json* target) {
  const TrainingFileEntry* entry = Value(key);
  if (entry == nullptr) return;
  if (entry->value.is_object()) {
    *target = entry->value;
    return;
  }
  if (entry->value.is_string()) {
    const Json parsed = Json::parse(entry->value.get<std::string>(), nullptr, false);
    if (parsed.is_object()) {
      *target = parsed;
      return;
    }
  }
  Fail(key, "must be a mapping or JSON text of one, is " + Shown(*entry, entry->value));
}

bool KeyReader::Word(std::string_view key, const std::vector<std::string_view>& words,
                     std::string* target) {
  const TrainingFileEntry* entry = Value(key);
  if (entry == nullptr) return false;
  std::string word = entry->value.is_string() ? entry->value.get<std::string>() : entry->written;
  if (std::find(words.begin(), words.end(), word) != words.end()) {
    *target = std::move(word);
    return true;
  }
  if (const std::string_view reason = RefusedValueReason(key, word); !reason.empty()) {
    Fail(key, reason);
    return false;
  }
  // Such as `no`, which YAML turns into a boolean, written as `false` or `off`.
  if (entry->value == Json(false) && std::find(words.begin(), words.end(), "no") != words.end()) {
    *target = "no";
    return true;
  }
  const std::vector<std::string> list(words.begin(), words.end());
  Fail(key, "must be one of " + Join(list, ", ") + "; is " + Shown(*entry, entry->value));
  return false;
}

}  // namespace everstep
