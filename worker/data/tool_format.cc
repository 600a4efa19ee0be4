#include "worker/data/tool_format.h"

#include <array>
#include <utility>

#include "common/json.h"
#include "common/strings.h"
#include "worker/data/python_json.h"

namespace everstep {
namespace {

constexpr std::array<std::pair<std::string_view, ToolFormat>, 4> kFormats = {{
    {"default", ToolFormat::kDefault},
    {"llama3", ToolFormat::kLlama3},
    {"mistral", ToolFormat::kMistral},
    {"qwen", ToolFormat::kQwen},
}};

struct FunctionCall {
  std::string name;
  OrderedJson arguments;
};

bool IsWrapped(const OrderedJson& tool) {
  return tool.is_object() && tool.contains("type") && tool["type"] == "function";
}

OrderedJson Wrapped(const OrderedJson& tool) {
  if (IsWrapped(tool)) return tool;
  return OrderedJson{{"type", "function"}, {"function", tool}};
}

// Text as Python's str.format puts it into a prompt.
std::string TextOf(const OrderedJson& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) return "";
  const OrderedJson& value = object[key];
  return value.is_string() ? value.get<std::string>() : PythonJsonUtf8(value);
}

bool IsTruthy(const OrderedJson& object, const char* key) {
  return object.is_object() && object.contains(key) && !object[key].is_null() &&
         !object[key].empty();
}

std::string ParameterLine(const std::string& name, const OrderedJson& parameter, bool required) {
  std::string choices;
  if (IsTruthy(parameter, "enum")) {
    std::vector<std::string> names;
    for (const OrderedJson& choice : parameter["enum"]) {
      names.push_back(choice.is_string() ? choice.get<std::string>() : PythonJsonUtf8(choice));
    }
    choices = ", should be one of [" + Join(names, ", ") + "]";
  }
  std::string items;
  if (IsTruthy(parameter, "items")) {
    items = ", where each item should be " + TextOf(parameter["items"], "type");
  }
  return "  - " + name + " (" + TextOf(parameter, "type") + (required ? ", required" : "") +
         "): " + TextOf(parameter, "description") + choices + items + "\n";
}

std::string ParameterLines(const OrderedJson& tool) {
  std::string lines;
  if (!tool.contains("parameters")) return lines;
  const OrderedJson& parameters = tool["parameters"];
  if (!parameters.is_object() || !parameters.contains("properties")) return lines;
  for (const auto& [name, parameter] : parameters["properties"].items()) {
    bool required = false;
    if (parameters.contains("required") && parameters["required"].is_array()) {
      for (const OrderedJson& entry : parameters["required"]) required |= entry == name;
    }
    lines += ParameterLine(name, parameter, required);
  }
  return lines;
}

std::string DefaultPrompt(const OrderedJson& tools) {
  std::string text;
  std::vector<std::string> names;
  for (const OrderedJson& entry : tools) {
    const OrderedJson& tool =
        IsWrapped(entry) && entry.contains("function") ? entry["function"] : entry;
    names.push_back(TextOf(tool, "name"));
    text += "> Tool Name: " + names.back() + "\nTool Description: " + TextOf(tool, "description") +
            "\nTool Args:\n" + ParameterLines(tool) + "\n";
  }
  return "You have access to the following tools:\n" + text +
         "Use the following format if using a tool:\n"
         "```\n"
         "Action: tool name (one of [" +
         Join(names, ", ") +
         "])\n"
         "Action Input: the input to the tool, in a JSON format representing the kwargs "
         "(e.g. ```{\"input\": \"hello world\", \"num_beams\": 5}```)\n"
         "```\n";
}

std::string DateText(WallTime today) {
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::chrono::year_month_day date{std::chrono::floor<std::chrono::days>(today)};
  char text[32];
  std::snprintf(text, sizeof(text), "%02u %s %d", static_cast<unsigned>(date.day()),
                kMonths[static_cast<unsigned>(date.month()) - 1], static_cast<int>(date.year()));
  return text;
}

std::string Llama3Prompt(const OrderedJson& tools, WallTime today) {
  std::string text;
  for (const OrderedJson& tool : tools) text += PythonJsonUtf8(Wrapped(tool), 4) + "\n\n";
  return "Cutting Knowledge Date: December 2023\nToday Date: " + DateText(today) +
         "\n\n"
         "You have access to the following functions. To call a function, please respond with "
         "JSON for a function call. "
         "Respond in the format {\"name\": function name, \"parameters\": dictionary of argument "
         "name and its value}. "
         "Do not use variables.\n\n" +
         text;
}

std::string MistralPrompt(const OrderedJson& tools) {
  OrderedJson wrapped = OrderedJson::array();
  for (const OrderedJson& tool : tools) wrapped.push_back(Wrapped(tool));
  return "[AVAILABLE_TOOLS] " + PythonJsonUtf8(wrapped) + "[/AVAILABLE_TOOLS]";
}

std::string QwenPrompt(const OrderedJson& tools) {
  std::string text;
  for (const OrderedJson& tool : tools) text += "\n" + PythonJsonUtf8(Wrapped(tool));
  return "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
         "You are provided with function signatures within <tools></tools> XML tags:\n<tools>" +
         text +
         "\n</tools>\n\nFor each function call, return a json object with function name and "
         "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
         "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";
}

Result<std::vector<FunctionCall>> ParseCalls(std::string_view text) {
  const OrderedJson parsed = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    return InvalidArgument("a function call must be JSON, is '" + std::string(text) + "'");
  }
  std::vector<FunctionCall> calls;
  const OrderedJson list = parsed.is_array() ? parsed : OrderedJson::array({parsed});
  for (const OrderedJson& call : list) {
    if (!call.is_object() || !call.contains("name") || !call.contains("arguments")) {
      return InvalidArgument("a function call must have 'name' and 'arguments', is '" +
                             PythonJsonUtf8(call) + "'");
    }
    calls.push_back({TextOf(call, "name"), call["arguments"]});
  }
  return calls;
}

std::string CallText(ToolFormat format, const std::vector<FunctionCall>& calls) {
  OrderedJson list = OrderedJson::array();
  std::vector<std::string> texts;
  const char* arguments_key = format == ToolFormat::kLlama3 ? "parameters" : "arguments";
  for (const FunctionCall& call : calls) {
    list.push_back(OrderedJson{{"name", call.name}, {arguments_key, call.arguments}});
    if (format == ToolFormat::kQwen) {
      texts.push_back("<tool_call>\n" + PythonJsonUtf8(list.back()) + "\n</tool_call>");
    } else {
      texts.push_back("Action: " + call.name + "\nAction Input: " + PythonJsonUtf8(call.arguments));
    }
  }
  switch (format) {
    case ToolFormat::kLlama3:
      return PythonJsonUtf8(list.size() == 1 ? list.front() : list);
    case ToolFormat::kMistral:
      return PythonJsonUtf8(list);
    case ToolFormat::kDefault:
    case ToolFormat::kQwen:
    case ToolFormat::kPhi4Mini:
      break;
  }
  return Join(texts, "\n");
}

// The first `open` ... `close` in `text`, or an empty view.
std::string_view FindBlock(std::string_view text, std::string_view open, std::string_view close) {
  const size_t begin = text.find(open);
  if (begin == std::string_view::npos) return {};
  const size_t end = text.find(close, begin + open.size());
  if (end == std::string_view::npos) return {};
  return text.substr(begin, end + close.size() - begin);
}

std::string Without(std::string_view text, std::string_view block) {
  std::string rest;
  while (true) {
    const size_t found = text.find(block);
    rest += text.substr(0, found);
    if (found == std::string_view::npos) return rest;
    text.remove_prefix(found + block.size());
  }
}

}  // namespace

std::optional<ToolFormat> FindToolFormat(std::string_view name) {
  for (const auto& [known, format] : kFormats) {
    if (known == name) return format;
  }
  return std::nullopt;
}

std::vector<std::string_view> ToolFormatNames() {
  std::vector<std::string_view> names;
  for (const auto& [name, format] : kFormats) names.push_back(name);
  return names;
}

Result<std::string> ToolPrompt(ToolFormat format, std::string_view tools, WallTime today) {
  if (format == ToolFormat::kPhi4Mini) return "<|tool|>" + std::string(tools) + "<|/tool|>";
  const OrderedJson parsed = OrderedJson::parse(tools, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return InvalidArgument("the tools must be JSON text");
  if (!parsed.is_array()) return InvalidArgument("the tools must be a JSON list");
  for (const OrderedJson& tool : parsed) {
    if (!tool.is_object()) return InvalidArgument("each tool must be a JSON object");
  }
  if (parsed.empty()) return std::string();
  switch (format) {
    case ToolFormat::kLlama3:
      return Llama3Prompt(parsed, today);
    case ToolFormat::kMistral:
      return MistralPrompt(parsed);
    case ToolFormat::kQwen:
      return QwenPrompt(parsed);
    case ToolFormat::kDefault:
    case ToolFormat::kPhi4Mini:
      break;
  }
  return DefaultPrompt(parsed);
}

Result<std::string> FunctionCallText(ToolFormat format, std::string_view content,
                                     bool allow_thoughts) {
  constexpr std::string_view kCallOpen = "<tool_call>";
  constexpr std::string_view kCallClose = "</tool_call>";
  std::string before;
  std::string json(content);
  if (allow_thoughts) {
    if (const auto call = FindBlock(content, kCallOpen, kCallClose); !call.empty()) {
      before = Without(content, call);
      json = call.substr(kCallOpen.size(), call.size() - kCallOpen.size() - kCallClose.size());
    } else if (const auto thought = FindBlock(content, "<think>\n", "\n</think>\n\n");
               !thought.empty()) {
      before = thought;
      json = Without(content, thought);
    }
  }
  ASSIGN_OR_RETURN(const std::vector<FunctionCall> calls, ParseCalls(json));
  return before + CallText(format, calls);
}

}  // namespace everstep
