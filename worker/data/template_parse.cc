#include "worker/data/template_parse.h"

#include <initializer_list>
#include <string_view>
#include <utility>

#include "worker/text/chat_template.h"

namespace everstep {
namespace {

constexpr std::string_view kPlaceholder = "{{content}}";

using Said = std::pair<const char*, std::string_view>;  // role and content

class Prober {
 public:
  Prober(const Tokenizer& tokenizer, WallTime today) : tokenizer_(tokenizer), today_(today) {
    prefix_ = tokenizer.Decode(tokenizer.Encode("", /*add_special_tokens=*/true));
  }

  // What the template writes for `messages`, without the tokenizer's own prefix.
  Result<std::string> Write(std::initializer_list<Said> messages, bool ask_for_answer) const {
    ChatTemplateInput input;
    for (const auto& [role, content] : messages) {
      input.messages.push_back({{"role", role}, {"content", content}});
    }
    input.add_generation_prompt = ask_for_answer;
    input.now = today_;
    auto text = RenderChatTemplate(*tokenizer_.chat_template(), tokenizer_, input);
    if (!text) {
      return InvalidArgument("template: the tokenizer's own chat template cannot be used (" +
                             text.error().message +
                             "); set 'template' to the name of the model's template");
    }
    return text->substr(std::min(prefix_.size(), text->size()));
  }

  const std::string& prefix() const { return prefix_; }

 private:
  const Tokenizer& tokenizer_;
  WallTime today_;
  std::string prefix_;
};

size_t CharacterLength(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  return std::min(length, text.size());
}

// The characters of `longer` that are not matched when `shorter` is searched in it in order.
std::string Inserted(std::string_view shorter, std::string_view longer) {
  std::string inserted;
  while (!shorter.empty() && !longer.empty()) {
    const std::string_view character = longer.substr(0, CharacterLength(longer));
    longer.remove_prefix(character.size());
    if (shorter.starts_with(character)) {
      shorter.remove_prefix(character.size());
    } else {
      inserted += character;
    }
  }
  return inserted;
}

void Remove(std::string& text, std::string_view part) {
  for (size_t found = text.find(part); found != std::string::npos; found = text.find(part)) {
    text.erase(found, part.size());
  }
}

std::string WithContent(std::string slot, std::string_view content) {
  const size_t found = slot.find(kPlaceholder);
  if (found != std::string::npos) slot.replace(found, kPlaceholder.size(), content);
  return slot;
}

Slots OneText(const std::string& text) { return {Slot{Slot::Kind::kText, text}}; }

}  // namespace

Result<ChatFormat> ParseChatTemplate(const Tokenizer& tokenizer, WallTime today) {
  const Prober prober(tokenizer, today);
  ASSIGN_OR_RETURN(const std::string system, prober.Write({{"system", kPlaceholder}}, false));
  ASSIGN_OR_RETURN(const std::string user_without_system,
                   prober.Write({{"system", ""}, {"user", kPlaceholder}}, true));
  ASSIGN_OR_RETURN(std::string user, prober.Write({{"user", kPlaceholder}}, true));
  ASSIGN_OR_RETURN(const std::string both,
                   prober.Write({{"user", kPlaceholder}, {"assistant", kPlaceholder}}, false));

  ChatFormat format;
  format.name = "(the tokenizer's chat template)";
  std::string assistant = both.substr(std::min(user.size(), both.size()));
  if (assistant.find("<think>") != std::string::npos) format.family = TemplateFamily::kReasoning;
  Remove(assistant, "<think>");
  Remove(assistant, "</think>");
  assistant.erase(0, std::min(assistant.find_first_not_of('\n'), assistant.size()));
  if (user.size() > user_without_system.size()) {
    format.default_system = Inserted(user_without_system, user);
    const std::string sole_system = WithContent(system, format.default_system);
    user.erase(0, std::min(sole_system.size(), user.size()));
  }
  for (const std::string& slot : {system, user, assistant}) {
    if (slot.find(kPlaceholder) != std::string::npos) continue;
    return InvalidArgument(
        "template: the tokenizer's own chat template does not repeat a message as it is, so "
        "nothing can be learned from it; set 'template' to the name of the model's template");
  }
  if (!prober.prefix().empty()) format.prefix = OneText(prober.prefix());
  format.system = OneText(system);
  format.user = OneText(user);
  format.assistant = OneText(assistant);
  format.function = format.assistant;
  format.observation = format.user;
  return format;
}

}  // namespace everstep
