#include "operator/api/schema.h"

#include <algorithm>
#include <cmath>

#include "common/strings.h"

namespace everstep {
namespace {

using enum FieldType;

const std::vector<FieldRule>& Rules() {
  static const std::vector<FieldRule> rules{
      {"apiVersion", kText},
      {"kind", kText},
      {"metadata", kMapping},
      {"status", kFree},
      {"spec", kObject},
      {"spec.replicas", kInteger, 1, 4096},
      {"spec.processesPerReplica", kInteger, 1, 64},
      {"spec.gpusPerReplica", kInteger, 0, 64},
      {"spec.threadsPerProcess", kInteger, 1, 1024},
      {"spec.elastic", kObject},
      {"spec.elastic.minReplicas", kInteger, 1, 4096},
      {"spec.elastic.onShrink", kText, 0, 0, {"KeepGlobalBatch", "ScaleBatch"}},
      {"spec.elastic.lrScaling", kText, 0, 0, {"Linear", "Sqrt", "None"}},
      {"spec.spares", kInteger, 0, 1024},
      {"spec.image", kText},
      {"spec.command", kTextList},
      {"spec.args", kTextList},
      {"spec.env", kList},
      {"spec.resources", kMapping},
      {"spec.template", kMapping},
      {"spec.train", kFree},
      {"spec.trainFrom", kObject},
      {"spec.trainFrom.configMapKeyRef", kObject},
      {"spec.trainFrom.configMapKeyRef.name", kText},
      {"spec.trainFrom.configMapKeyRef.key", kText},
      {"spec.rendezvous", kObject},
      {"spec.rendezvous.port", kInteger, 1, 65535},
      {"spec.rendezvous.networkInterface", kText},
      {"spec.rendezvous.hostNetwork", kBool},
      {"spec.rendezvous.timeoutSeconds", kInteger, 1, 86400},
      {"spec.checkpoint", kObject},
      {"spec.checkpoint.claimName", kText},
      {"spec.checkpoint.claimTemplate", kMapping},
      {"spec.checkpoint.path", kText},
      {"spec.checkpoint.keepLast", kInteger, 1, 10000},
      {"spec.checkpoint.milestoneSteps", kInteger, 1},
      {"spec.checkpoint.intervalSteps", kInteger, 1},
      {"spec.recovery", kObject},
      {"spec.recovery.maxRestarts", kInteger, 0, 100000},
      {"spec.recovery.windowSeconds", kInteger, 1},
      {"spec.recovery.maxNoProgress", kInteger, 1, 1000},
      {"spec.recovery.inPlaceBeforeRecreate", kInteger, 0, 1000},
      {"spec.recovery.backoff", kObject},
      {"spec.recovery.backoff.initialSeconds", kNumber, 0, 86400},
      {"spec.recovery.backoff.maxSeconds", kNumber, 0, 86400},
      {"spec.recovery.fatalExitCodes", kIntegerList, 1, 255},
      {"spec.recovery.excludeNodeAfter", kInteger, 1, 1000},
      {"spec.health", kObject},
      {"spec.health.heartbeatTimeoutSeconds", kNumber, 0.1, 3600},
      {"spec.health.stepTimeoutSeconds", kIntegerOrAuto, 1, 86400},
      {"spec.health.startupDeadlineSeconds", kInteger, 1, 86400},
      {"spec.health.stuckTerminatingSeconds", kInteger, 1, 86400},
      {"spec.suspend", kBool},
      {"spec.queueName", kText},
      {"spec.managedBy", kText},
      {"spec.scheduling", kObject},
      {"spec.scheduling.gang", kText, 0, 0, {"None", "Volcano", "Coscheduling", "Native"}},
      {"spec.scheduling.priorityClassName", kText},
      {"spec.scheduling.topologyKey", kText},
      {"spec.activeDeadlineSeconds", kInteger, 1},
      {"spec.ttlSecondsAfterFinished", kInteger, 0},
      {"spec.cleanPodPolicy", kText, 0, 0, {"None", "Running", "All"}},
      {"spec.networkPolicy", kText, 0, 0, {"None", "Isolated"}},
  };
  return rules;
}

const FieldRule* Find(std::string_view path) {
  const auto& rules = Rules();
  const auto found =
      std::ranges::find_if(rules, [&](const FieldRule& rule) { return rule.path == path; });
  return found == rules.end() ? nullptr : &*found;
}

// The names that may stand below `parent`.
std::vector<std::string_view> ChildrenOf(const std::string& parent) {
  std::vector<std::string_view> children;
  const std::string prefix = parent.empty() ? "" : parent + ".";
  for (const FieldRule& rule : Rules()) {
    if (!rule.path.starts_with(prefix)) continue;
    const std::string_view rest = rule.path.substr(prefix.size());
    if (rest.find('.') == std::string_view::npos) children.push_back(rest);
  }
  return children;
}

class Checker {
 public:
  explicit Checker(const Document& document) : document_(document) {}

  void CheckObject(const OrderedJson& object, const std::string& path) {
    for (const auto& [key, value] : object.items()) {
      const std::string child = path.empty() ? key : path + "." + key;
      const FieldRule* rule = Find(child);
      if (rule == nullptr) {
        Complain(child, "unknown field" + DidYouMean(key, ChildrenOf(path)));
      } else if (!value.is_null()) {
        CheckValue(*rule, value, child);
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
      case kMapping:
        if (!value.is_object()) return Complain(path, "must be a mapping, is " + Show(value));
        if (rule.type == kObject) CheckObject(value, path);
        return;
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

  void CheckText(const FieldRule& rule, const OrderedJson& value, const std::string& path) {
    if (!value.is_string()) return Complain(path, "must be text, is " + Show(value));
    const auto text = value.get<std::string>();
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
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string item = path + "[" + std::to_string(i) + "]";
      if (rule.type == kTextList && !value[i].is_string()) {
        Complain(item, "must be text (quote it), is " + Show(value[i]));
      } else if (rule.type == kIntegerList) {
        CheckNumber(rule, value[i], item, "a whole number");
      } else if (rule.type == kList && !value[i].is_object()) {
        Complain(item, "must be a mapping, is " + Show(value[i]));
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

std::string NumberText(double number) {
  if (number == std::floor(number)) return std::to_string(static_cast<int64_t>(number));
  std::string text = std::to_string(number);
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

std::span<const FieldRule> TrainingJobFields() { return Rules(); }

std::vector<std::string> CheckFields(const Document& document) {
  Checker checker(document);
  checker.CheckObject(document.value, "");
  return std::move(checker.problems);
}

}  // namespace everstep
