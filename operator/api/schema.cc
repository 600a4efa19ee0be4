#include "operator/api/schema.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "common/strings.h"

namespace everstep {
namespace {

using enum FieldType;

std::vector<std::string_view> NamesBelow(const std::string& parent) {
  std::vector<std::string_view> names;
  for (const FieldRule* field : FieldsBelow(parent)) names.push_back(FieldName(*field));
  return names;
}

// Code points, as the API server counts: in UTF-8 all but the first byte of one are 10xxxxxx.
size_t Length(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

class Checker {
 public:
  explicit Checker(const Document& document) : document_(document) {}

  // `fields` is the path of its rules: that of an entry of a list has no index.
  void CheckObject(const OrderedJson& object, const std::string& path, const std::string& fields,
                   bool open = false) {
    const auto below = [](const std::string& parent, const std::string& key) {
      return parent.empty() ? key : parent + "." + key;
    };
    for (const FieldRule* field : FieldsBelow(fields)) {
      const std::string name(FieldName(*field));
      const bool given = object.contains(name) && !object[name].is_null();
      if (field->required && !given && !path.empty()) Complain(path, "needs " + name);
    }
    for (const auto& [key, value] : object.items()) {
      const FieldRule* rule = FindField(below(fields, key));
      if (rule == nullptr) {
        if (!open)
          Complain(below(path, key), "unknown field" + DidYouMean(key, NamesBelow(fields)));
      } else if (!value.is_null()) {
        CheckValue(*rule, value, below(path, key));
      }
    }
  }

  std::vector<std::string> problems;

 private:
  void Complain(const std::string& path, const std::string& what) {
    problems.push_back(document_.Where(path) + path + ": " + what);
  }

  void CheckValue(const FieldRule& rule, const OrderedJson& value, const std::string& path) {
    switch (rule.type) {
      case kFree:
        return;
      case kObject:
      case kOpen:
      case kMapping:
      case kTextMap:
        return CheckMapping(rule, value, path);
      case kBool:
        if (!value.is_boolean()) Complain(path, "must be true or false, is " + Show(value));
        return;
      case kText:
        return CheckText(rule, value, path);
      case kIntegerOrAuto:
        if (value.is_string() && value.get<std::string>() == "auto") return;
        return CheckNumber(rule, value, path, "a whole number or auto");
      case kInteger:
        return CheckNumber(rule, value, path, "a whole number");
      case kNumber:
        return CheckNumber(rule, value, path, "a number");
      case kList:
      case kTextList:
      case kIntegerList:
        return CheckList(rule, value, path);
    }
  }

  void CheckMapping(const FieldRule& rule, const OrderedJson& value, const std::string& path) {
    if (!value.is_object()) return Complain(path, "must be a mapping, is " + Show(value));
    CheckCount(rule, value, path);
    if (rule.type == kObject || rule.type == kOpen) {
      CheckObject(value, path, std::string(rule.path), rule.type == kOpen);
    }
    if (rule.type != kTextMap) return;
    for (const auto& [key, text] : value.items()) CheckText(rule, text, path + "." + key);
  }

  void CheckCount(const FieldRule& rule, const OrderedJson& value, const std::string& path) {
    if (rule.most == 0 || value.size() <= rule.most) return;
    Complain(path, "must have at most " + std::to_string(rule.most) + " entries, has " +
                       std::to_string(value.size()));
  }

  void CheckText(const FieldRule& rule, const OrderedJson& value, const std::string& path) {
    if (!value.is_string()) {
      const bool quotable = value.is_number() || value.is_boolean();
      return Complain(path, std::string("must be text") + (quotable ? " (quote it)" : "") +
                                ", is " + Show(value));
    }
    const auto text = value.get<std::string>();
    if (rule.longest > 0 && Length(text) > rule.longest) {
      Complain(path, "must be at most " + std::to_string(rule.longest) + " characters long, has " +
                         std::to_string(Length(text)));
    }
    if (rule.form != nullptr && !HasForm(text, *rule.form)) {
      Complain(path, std::string(rule.form->must) + ", is '" + text + "'");
    }
    if (rule.choices.empty() || std::ranges::find(rule.choices, text) != rule.choices.end()) return;
    Complain(path, "must be one of " + Join({rule.choices.begin(), rule.choices.end()}, ", ") +
                       ", is '" + text + "'");
  }

  void CheckNumber(const FieldRule& rule, const OrderedJson& value, const std::string& path,
                   const std::string& kind) {
    const bool fits = rule.type == kNumber ? value.is_number() : value.is_number_integer();
    if (!fits) return Complain(path, "must be " + kind + ", is " + Show(value));
    const double number = value.get<double>();
    if (number < rule.minimum) {
      Complain(path, "must be at least " + NumberText(rule.minimum) + ", is " + NumberText(number));
    } else if (number > rule.maximum) {
      Complain(path, "must be at most " + NumberText(rule.maximum) + ", is " + NumberText(number));
    }
  }

  void CheckList(const FieldRule& rule, const OrderedJson& value, const std::string& path) {
    if (!value.is_array()) return Complain(path, "must be a list, is " + Show(value));
    CheckCount(rule, value, path);
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string item = path + "[" + std::to_string(i) + "]";
      if (rule.type == kTextList) {
        CheckText(rule, value[i], item);
      } else if (rule.type == kIntegerList) {
        CheckNumber(rule, value[i], item, "a whole number");
      } else if (!value[i].is_object()) {
        Complain(item, "must be a mapping, is " + Show(value[i]));
      } else {
        CheckObject(value[i], item, std::string(rule.path));
      }
    }
  }

  static std::string Show(const OrderedJson& value) {
    if (value.is_object()) return "a mapping";
    if (value.is_array()) return "a list";
    if (value.is_string()) return "'" + value.get<std::string>() + "'";
    return DumpJson(value);
  }

  const Document& document_;
};

}  // namespace

bool HasForm(const std::string& text, const TextForm& form) {
  // std::regex recurses for every character.
  constexpr size_t kLongest = 1024;
  if (text.size() > kLongest) return false;
  return std::regex_match(text, std::regex(form.pattern.begin(), form.pattern.end()));
}

std::string NumberText(double number) {
  if (number == std::floor(number)) return std::to_string(static_cast<int64_t>(number));
  std::string text = std::to_string(number);
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

std::vector<std::string> CheckFields(const Document& document) {
  Checker checker(document);
  checker.CheckObject(document.value, "", "");
  return std::move(checker.problems);
}

}  // namespace everstep
