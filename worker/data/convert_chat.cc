#include "worker/data/convert_chat.h"

#include <span>

#include "worker/data/python_json.h"

namespace everstep {
namespace {

enum class Speaker { kUser, kAssistant, kObservation, kFunction, kSystem };

struct TaggedMessage {
  std::optional<Speaker> speaker;  // none: the tag is unknown
  std::string content;
};

// A tag that stands for two speakers means the later one, as in LLaMA-Factory's mapping.
std::optional<Speaker> SpeakerOf(const DatasetTags& tags, const std::string& tag) {
  std::optional<Speaker> speaker;
  if (tag.empty()) return speaker;
  if (tag == tags.user) speaker = Speaker::kUser;
  if (tag == tags.assistant) speaker = Speaker::kAssistant;
  if (tag == tags.observation) speaker = Speaker::kObservation;
  if (tag == tags.function) speaker = Speaker::kFunction;
  if (tag == tags.system) speaker = Speaker::kSystem;
  return speaker;
}

Result<std::string> TextField(const OrderedJson& message, const std::string& key, size_t index) {
  const std::string where = "message " + std::to_string(index + 1);
  if (!message.is_object() || !message.contains(key)) {
    return InvalidArgument(where + " has no '" + key +
                           "'; name the right key in the data set's 'tags'");
  }
  const OrderedJson& value = message[key];
  if (value.is_string()) return value.get<std::string>();
  return InvalidArgument(where + ": '" + key + "' must be text, is " + value.type_name());
}

// The text of an assistant message with tool_calls: the list of its function calls.
std::optional<std::string> ToolCallText(const OrderedJson& message) {
  if (!message.contains("tool_calls") || !message["tool_calls"].is_array() ||
      message["tool_calls"].empty()) {
    return std::nullopt;
  }
  OrderedJson calls = OrderedJson::array();
  for (const OrderedJson& call : message["tool_calls"]) {
    calls.push_back(call.is_object() && call.contains("function") ? call["function"] : call);
  }
  return PythonJsonUtf8(calls);
}

bool MayStandAt(Role role, size_t position) {
  const bool asks = role == Role::kUser || role == Role::kObservation;
  return asks == (position % 2 == 0);
}

bool InOrder(std::span<const Message> messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!MayStandAt(messages[i].role, i)) return false;
  }
  return messages.size() % 2 == 0;
}

Role RoleOf(Speaker speaker) {
  switch (speaker) {
    case Speaker::kAssistant:
      return Role::kAssistant;
    case Speaker::kObservation:
      return Role::kObservation;
    case Speaker::kFunction:
      return Role::kFunction;
    case Speaker::kUser:
    case Speaker::kSystem:
      break;
  }
  return Role::kUser;
}

// Takes a leading system message off.
Result<size_t> TakeSystem(const DatasetTags& tags, const OrderedJson& messages,
                          ChatMessages& chat) {
  if (!messages.is_array()) {
    return InvalidArgument(std::string("the messages must be a list, are ") + messages.type_name());
  }
  if (messages.empty() || tags.system.empty()) return size_t{0};
  ASSIGN_OR_RETURN(const std::string role, TextField(messages[0], tags.role, 0));
  if (role != tags.system) return size_t{0};
  ASSIGN_OR_RETURN(chat.system, TextField(messages[0], tags.content, 0));
  return size_t{1};
}

Result<TaggedMessage> ReadOpenAiMessage(const DatasetTags& tags, const OrderedJson& message,
                                        size_t index) {
  ASSIGN_OR_RETURN(const std::string tag, TextField(message, tags.role, index));
  TaggedMessage read{.speaker = SpeakerOf(tags, tag), .content = ""};
  // OpenAI's own name of a tool's answer needs no tag.
  if (!read.speaker && tag == "tool") read.speaker = Speaker::kObservation;
  const bool answers = read.speaker == Speaker::kAssistant || read.speaker == Speaker::kFunction;
  if (auto calls = answers ? ToolCallText(message) : std::nullopt) {
    read.speaker = Speaker::kFunction;
    read.content = *std::move(calls);
    return read;
  }
  ASSIGN_OR_RETURN(read.content, TextField(message, tags.content, index));
  return read;
}

}  // namespace

Result<ChatMessages> ReadSharegptMessages(const DatasetTags& tags, const OrderedJson& messages) {
  ChatMessages chat;
  ASSIGN_OR_RETURN(const size_t first, TakeSystem(tags, messages, chat));
  for (size_t i = first; i < messages.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string tag, TextField(messages[i], tags.role, i));
    const std::optional<Speaker> speaker = SpeakerOf(tags, tag);
    if (!speaker || *speaker == Speaker::kSystem ||
        !MayStandAt(RoleOf(*speaker), chat.messages.size())) {
      chat.messages.clear();
      return chat;
    }
    ASSIGN_OR_RETURN(std::string content, TextField(messages[i], tags.content, i));
    chat.messages.push_back({RoleOf(*speaker), std::move(content)});
  }
  if (!InOrder(chat.messages)) chat.messages.clear();
  return chat;
}

Result<ChatMessages> ReadOpenAiMessages(const DatasetTags& tags, const OrderedJson& messages) {
  constexpr const char* kBetweenResults = "\n</tool_response>\n<tool_response>\n";
  ChatMessages chat;
  ASSIGN_OR_RETURN(const size_t first, TakeSystem(tags, messages, chat));
  bool in_results = false;  // the last message collects tool results
  for (size_t i = first; i < messages.size(); ++i) {
    ASSIGN_OR_RETURN(TaggedMessage message, ReadOpenAiMessage(tags, messages[i], i));
    if (!message.speaker || *message.speaker == Speaker::kSystem) {
      chat.messages.clear();
      return chat;
    }
    const bool result = *message.speaker == Speaker::kObservation;
    if (result && in_results) {
      chat.messages.back().content += kBetweenResults + message.content;
    } else {
      chat.messages.push_back({RoleOf(*message.speaker), std::move(message.content)});
    }
    in_results = result;
  }
  // Results that nobody answers cannot be learned from.
  if (in_results) chat.messages.pop_back();
  if (!InOrder(chat.messages)) chat.messages.clear();
  return chat;
}

}  // namespace everstep
