#include "worker/data/convert.h"

#include <algorithm>
#include <utility>

#include "common/strings.h"
#include "worker/data/convert_chat.h"
#include "worker/data/python_json.h"

namespace everstep {
namespace {

// The value of a column, or null: a row may leave columns out.
const OrderedJson& Cell(const OrderedJson& row, const std::string& column) {
  static const OrderedJson kNull = nullptr;
  const auto it = column.empty() ? row.end() : row.find(column);
  return it == row.end() ? kNull : *it;
}

Result<std::string> TextCell(const OrderedJson& row, const std::string& column) {
  const OrderedJson& cell = Cell(row, column);
  if (cell.is_null()) return std::string();
  if (cell.is_string()) return cell.get<std::string>();
  return InvalidArgument("column '" + column + "' must be text, is " + cell.type_name());
}

Result<std::string> ToolsCell(const OrderedJson& row, const std::string& column) {
  const OrderedJson& cell = Cell(row, column);
  if (cell.is_array() || cell.is_object()) return PythonJsonUtf8(cell);
  return TextCell(row, column);
}

Status ReadHistory(const OrderedJson& history, std::vector<Message>& prompt) {
  if (!history.is_array()) return {};
  for (const OrderedJson& turn : history) {
    if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string()) {
      return InvalidArgument("the history must be a list of [question, answer] pairs of text");
    }
    prompt.push_back({Role::kUser, turn[0].get<std::string>()});
    prompt.push_back({Role::kAssistant, turn[1].get<std::string>()});
  }
  return {};
}

Status ConvertAlpaca(const DatasetColumns& columns, const OrderedJson& row,
                     Conversation& conversation) {
  RETURN_IF_ERROR(ReadHistory(Cell(row, columns.history), conversation.prompt));
  std::vector<std::string> query;
  for (const std::string* column : {&columns.prompt, &columns.query}) {
    ASSIGN_OR_RETURN(std::string text, TextCell(row, *column));
    if (!text.empty()) query.push_back(std::move(text));
  }
  conversation.prompt.push_back({Role::kUser, Join(query, "\n")});
  const OrderedJson& response = Cell(row, columns.response);
  if (response.is_string()) {
    conversation.response.push_back({Role::kAssistant, response.get<std::string>()});
  }
  ASSIGN_OR_RETURN(conversation.system, TextCell(row, columns.system));
  ASSIGN_OR_RETURN(conversation.tools, ToolsCell(row, columns.tools));
  return {};
}

// The system text that LLaMA-Factory's openai converter makes of what a row has.
std::string OpenAiSystem(std::string system, bool has_tools) {
  constexpr std::string_view kNoThinking = "detailed thinking off";
  if (system.empty()) return has_tools ? "" : std::string(kNoThinking);
  if (has_tools) return system + "\n";
  const bool decided = system.find("detailed thinking on") != std::string::npos ||
                       system.find(kNoThinking) != std::string::npos;
  return decided ? system : system + "\n" + std::string(kNoThinking);
}

Status ConvertChat(const DatasetEntry& entry, const OrderedJson& row, Conversation& conversation) {
  const DatasetColumns& columns = entry.columns;
  const bool openai = entry.formatting == Formatting::kOpenai;
  const OrderedJson& messages = Cell(row, columns.messages);
  ASSIGN_OR_RETURN(ChatMessages chat, openai ? ReadOpenAiMessages(entry.tags, messages)
                                             : ReadSharegptMessages(entry.tags, messages));
  if (chat.system) {
    conversation.system = *std::move(chat.system);
  } else {
    ASSIGN_OR_RETURN(conversation.system, TextCell(row, columns.system));
  }
  ASSIGN_OR_RETURN(conversation.tools, ToolsCell(row, columns.tools));
  if (openai) {
    conversation.system = OpenAiSystem(std::move(conversation.system), !conversation.tools.empty());
  }
  if (chat.messages.empty()) return {};
  conversation.response.push_back(std::move(chat.messages.back()));
  chat.messages.pop_back();
  conversation.prompt = std::move(chat.messages);
  return {};
}

Status CheckNoMedia(const DatasetColumns& columns, const OrderedJson& row) {
  for (const std::string* column : {&columns.images, &columns.videos, &columns.audios}) {
    const OrderedJson& cell = Cell(row, *column);
    if (cell.empty() || cell == "") continue;
    return InvalidArgument("column '" + *column +
                           "' holds media, and only text can be trained on; remove such rows");
  }
  return {};
}

// Pairs of a key in "columns" and the column it names. Without "columns" the usual names of input
// and system may be missing, for LLaMA-Factory's own data sets leave them out.
std::vector<std::pair<const char*, std::string>> NeededColumns(const DatasetEntry& entry,
                                                               bool needs_answers) {
  const DatasetColumns& columns = entry.columns;
  if (entry.formatting == Formatting::kOpenai) return {{"messages", columns.messages}};
  if (entry.formatting == Formatting::kSharegpt) {
    return {{"messages", columns.messages}, {"system", columns.system}, {"tools", columns.tools}};
  }
  std::vector<std::pair<const char*, std::string>> needed = {{"prompt", columns.prompt}};
  if (columns.given) {
    needed.insert(needed.end(), {{"query", columns.query},
                                 {"history", columns.history},
                                 {"system", columns.system},
                                 {"tools", columns.tools}});
  }
  if (columns.given || needs_answers) needed.emplace_back("response", columns.response);
  return needed;
}

}  // namespace

Status CheckColumns(const DatasetEntry& entry, const RowTable& table, bool needs_answers) {
  for (const auto& [key, column] : NeededColumns(entry, needs_answers)) {
    const auto& there = table.columns;
    if (column.empty() || std::find(there.begin(), there.end(), column) != there.end()) continue;
    const std::vector<std::string_view> known(there.begin(), there.end());
    return InvalidArgument(table.source + ": has no column '" + column + "'" +
                           DidYouMean(column, known) + "; it has: " + Join(there, ", ") +
                           "; set '" + key + "' under 'columns' of '" + entry.name +
                           "' in dataset_info.json");
  }
  if (entry.formatting != Formatting::kAlpaca && entry.columns.messages.empty()) {
    return InvalidArgument("dataset '" + entry.name +
                           "': 'columns' lacks 'messages' (columns that are not listed have no "
                           "value); add it");
  }
  return {};
}

Result<Conversation> ConvertRow(const DatasetEntry& entry, const RowTable& table, size_t row) {
  Conversation conversation;
  conversation.origins = table.origins;
  conversation.row = row;
  const OrderedJson& cells = table.rows[row];
  Status status = CheckNoMedia(entry.columns, cells);
  if (status) {
    status = entry.formatting == Formatting::kAlpaca
                 ? ConvertAlpaca(entry.columns, cells, conversation)
                 : ConvertChat(entry, cells, conversation);
  }
  if (!status) {
    return MakeError(status.error().code, conversation.Where() + ": " + status.error().message);
  }
  return conversation;
}

}  // namespace everstep
