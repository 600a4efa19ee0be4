#include "worker/config/interpolation.h"

#include "common/strings.h"

namespace everstep {
namespace {

class Interpolator {
 public:
  Interpolator(TrainingFile* file, const EnvironmentLookup& environment)
      : file_(file), original_(*file), environment_(environment) {}

  void Run() {
    for (TrainingFileEntry& entry : file_->entries) {
      entry_ = &entry;
      entry.value = Replace(std::move(entry.value), 0);
      if (entry.failed) entry.value = nullptr;
      if (entry.value.is_string()) entry.written = entry.value.get<std::string>();
    }
  }

 private:
  Json Replace(Json value, int depth) {
    if (value.is_structured()) {
      for (Json& item : value) item = Replace(std::move(item), depth);
      return value;
    }
    if (!value.is_string()) return value;
    return ReplaceText(value.get<std::string>(), depth);
  }

  // A text that is one single reference takes the type of what it refers to.
  Json ReplaceText(const std::string& text, int depth) {
    if (text.find("${") == std::string::npos) return text;
    if (depth >= kMaxInterpolationDepth) {
      Fail("${...} refers to itself: break the circle");
      return text;
    }
    std::string result;
    size_t at = 0;
    while (true) {
      const size_t begin = text.find("${", at);
      if (begin == std::string::npos) break;
      const size_t end = text.find('}', begin);
      if (end == std::string::npos) {
        Fail("'${' without its '}' in '" + text + "'");
        return text;
      }
      const Json value = Resolve(text.substr(begin + 2, end - begin - 2), depth);
      if (begin == 0 && end + 1 == text.size()) return value;
      result += text.substr(at, begin - at);
      result += value.is_string() ? value.get<std::string>() : DumpJson(value);
      at = end + 1;
    }
    return result + text.substr(at);
  }

  Json Resolve(const std::string& expression, int depth) {
    constexpr std::string_view kEnvironment = "oc.env:";
    if (expression.starts_with(kEnvironment)) {
      return ResolveEnvironment(expression.substr(kEnvironment.size()));
    }
    if (expression.find(':') != std::string::npos) {
      Fail("${" + expression + "}: only ${oc.env:NAME} and ${key} can be used here");
      return "";
    }
    const TrainingFileEntry* referred = original_.Find(expression);
    if (referred == nullptr) {
      Fail("${" + expression + "} refers to a key that this file does not have");
      return "";
    }
    return Replace(referred->value, depth + 1);
  }

  Json ResolveEnvironment(const std::string& arguments) {
    const size_t comma = arguments.find(',');
    const std::string name(Trim(arguments.substr(0, comma)));
    if (auto value = environment_(name)) return *value;
    if (comma != std::string::npos) return std::string(Trim(arguments.substr(comma + 1)));
    Fail("environment variable " + name + " is not set: set it, or write ${oc.env:" + name +
         ",default}");
    return "";
  }

  void Fail(const std::string& text) {
    entry_->failed = true;
    file_->problems.push_back({entry_->line, entry_->key + ": " + text});
  }

  TrainingFile* file_;
  const TrainingFile original_;  // what references refer to, whatever has been replaced by then
  const EnvironmentLookup& environment_;
  TrainingFileEntry* entry_ = nullptr;
};

}  // namespace

void Interpolate(TrainingFile* file, const EnvironmentLookup& environment) {
  Interpolator(file, environment).Run();
}

}  // namespace everstep
