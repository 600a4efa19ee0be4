#include "worker/data/render.h"

#include <string_view>

namespace everstep {
namespace {

constexpr std::string_view kPlaceholder = "{{content}}";
constexpr std::string_view kThoughtOpen = "<think>\n";
constexpr std::string_view kThoughtClose = "\n</think>\n\n";

// The slots with the placeholder replaced once in each.
void Append(const Slots& slots, std::string_view content, Slots& out) {
  for (Slot slot : slots) {
    if (slot.kind == Slot::Kind::kText) {
      const size_t found = slot.text.find(kPlaceholder);
      if (found != std::string::npos) slot.text.replace(found, kPlaceholder.size(), content);
      if (slot.text.empty()) continue;
    }
    out.push_back(std::move(slot));
  }
}

std::string WithoutThoughts(std::string_view text) {
  std::string rest;
  while (true) {
    const size_t open = text.find(kThoughtOpen);
    const size_t close = open == std::string_view::npos
                             ? open
                             : text.find(kThoughtClose, open + kThoughtOpen.size());
    if (close == std::string_view::npos) break;
    rest += text.substr(0, open);
    text.remove_prefix(close + kThoughtClose.size());
  }
  rest += text;
  return rest.substr(std::min(rest.find_first_not_of('\n'), rest.size()));
}

bool HasThought(std::string_view text) {
  return text.find("<think>") != std::string_view::npos ||
         text.find("</think>") != std::string_view::npos;
}

std::vector<Message> AllMessages(const ChatFormat& format, const Conversation& conversation,
                                 const RenderOptions& options) {
  std::vector<Message> messages = conversation.prompt;
  messages.push_back(conversation.response.front());
  if (format.family != TemplateFamily::kReasoning) return messages;
  for (size_t i = 1; i < messages.size(); i += 2) {
    const bool history = i + 2 < messages.size();
    if (!format.enable_thinking || (history && options.drop_history_thoughts)) {
      messages[i].content = WithoutThoughts(messages[i].content);
    }
  }
  return messages;
}

Result<std::string> SystemText(const ChatFormat& format, const Conversation& conversation,
                               WallTime today) {
  std::string text = conversation.system.empty() ? format.default_system : conversation.system;
  if (!conversation.tools.empty()) {
    ASSIGN_OR_RETURN(const std::string tools,
                     ToolPrompt(format.tool_format, conversation.tools, today));
    text += tools;
  }
  return text;
}

Status AppendMessage(const ChatFormat& format, const Message& message,
                     std::string_view system_in_user, Slots& out) {
  switch (message.role) {
    case Role::kUser:
      Append(format.user, std::string(system_in_user) + message.content, out);
      return {};
    case Role::kAssistant:
      Append(format.assistant, message.content, out);
      return {};
    case Role::kObservation:
      Append(format.observation, message.content, out);
      return {};
    case Role::kFunction: {
      ASSIGN_OR_RETURN(const std::string call,
                       FunctionCallText(format.function_format, message.content,
                                        format.family != TemplateFamily::kSystemInUser));
      Append(format.function, call, out);
      return {};
    }
  }
  return {};
}

// Answers of a reasoning template that hold no thought get an empty one.
void AddEmptyThoughts(const ChatFormat& format, const std::vector<Message>& messages,
                      bool last_only, std::vector<RenderedTurn>& turns) {
  const Slot empty_thought = {Slot::Kind::kText,
                              std::string(kThoughtOpen) + std::string(kThoughtClose)};
  for (size_t turn = last_only ? turns.size() - 1 : 0; turn < turns.size(); ++turn) {
    if (HasThought(messages[2 * turn + 1].content)) continue;
    if (format.enable_thinking) {
      turns[turn].target.insert(turns[turn].target.begin(), empty_thought);
    } else {
      turns[turn].source.push_back(empty_thought);
    }
  }
}

}  // namespace

Result<std::vector<RenderedTurn>> Render(const ChatFormat& format, const Conversation& conversation,
                                         const RenderOptions& options) {
  const std::vector<Message> messages = AllMessages(format, conversation, options);
  ASSIGN_OR_RETURN(const std::string system, SystemText(format, conversation, options.today));
  const bool has_system = !system.empty() || !conversation.tools.empty();

  std::vector<RenderedTurn> turns(messages.size() / 2);
  std::string system_in_user;
  Append(format.prefix, "", turns[0].source);
  if (has_system && format.family == TemplateFamily::kSystemInUser) {
    Slots text;
    Append(format.system, system, text);
    if (!text.empty()) system_in_user = text.front().text;
  } else if (has_system) {
    Append(format.system, system, turns[0].source);
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    RenderedTurn& turn = turns[i / 2];
    RETURN_IF_ERROR(AppendMessage(format, messages[i], i == 0 ? system_in_user : "",
                                  i % 2 == 0 ? turn.source : turn.target));
  }
  if (format.family == TemplateFamily::kReasoning) {
    AddEmptyThoughts(format, messages, options.drop_history_thoughts, turns);
  }
  return turns;
}

}  // namespace everstep
