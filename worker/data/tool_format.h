// How a model is told about tools, and how it calls them: the text that LLaMA-Factory's templates
// put into the system message and into function turns.
#ifndef EVERSTEP_WORKER_DATA_TOOL_FORMAT_H_
#define EVERSTEP_WORKER_DATA_TOOL_FORMAT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/result.h"

namespace everstep {

enum class ToolFormat { kDefault, kLlama3, kMistral, kQwen, kPhi4Mini };

// By the name that `tool_format` of a training file uses.
std::optional<ToolFormat> FindToolFormat(std::string_view name);
std::vector<std::string_view> ToolFormatNames();

// Text for the system message. `tools` is JSON text: a list of tools, each {"name", "description",
// "parameters"} or wrapped as {"type": "function", "function": {...}}. The llama3 format contains
// the date of `today` in UTC.
Result<std::string> ToolPrompt(ToolFormat format, std::string_view tools, WallTime today);

// Text of a function turn whose content is JSON: {"name", "arguments"} or a list of such. With
// `allow_thoughts` it may stand beside a <think> block or inside <tool_call> tags; what is around
// it is kept in front of the call.
Result<std::string> FunctionCallText(ToolFormat format, std::string_view content,
                                     bool allow_thoughts);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_TOOL_FORMAT_H_
