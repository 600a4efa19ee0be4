#include "worker/data/template_catalog.h"

#include <iterator>
#include <utility>

#include "worker/data/template_groups.h"

namespace everstep {
namespace {

// Fills in what an entry leaves out.
ChatFormat Complete(ChatFormat format) {
  const Slots content = {Text("{{content}}")};
  if (format.user.empty()) format.user = content;
  if (format.system.empty()) format.system = content;
  if (format.observation.empty()) format.observation = format.user;
  if (format.assistant.empty()) {
    format.assistant = content;
    if (!format.efficient_eos) format.assistant.push_back(Eos());
  }
  if (format.function.empty()) format.function = format.assistant;
  return format;
}

const std::vector<ChatFormat>& Catalog() {
  static const std::vector<ChatFormat> catalog = [] {
    std::vector<ChatFormat> all;
    for (auto* group : {&PlainTextTemplates, &ChatMlTemplates, &SpecialTokenTemplates}) {
      for (ChatFormat& format : (*group)()) all.push_back(Complete(std::move(format)));
    }
    return all;
  }();
  return catalog;
}

}  // namespace

std::optional<ChatFormat> FindTemplate(std::string_view name) {
  for (const ChatFormat& format : Catalog()) {
    if (format.name == name) return format;
  }
  return std::nullopt;
}

std::vector<std::string_view> TemplateNames() {
  std::vector<std::string_view> names;
  for (const ChatFormat& format : Catalog()) names.push_back(format.name);
  return names;
}

}  // namespace everstep
