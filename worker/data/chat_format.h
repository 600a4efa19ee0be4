// What a LLaMA-Factory template consists of: slots around the content of each kind of message.
#ifndef EVERSTEP_WORKER_DATA_CHAT_FORMAT_H_
#define EVERSTEP_WORKER_DATA_CHAT_FORMAT_H_

#include <string>
#include <vector>

#include "worker/data/tool_format.h"

namespace everstep {

// A text slot may contain "{{content}}". Every text slot is tokenized by itself; the token slots
// add one id, or nothing when the tokenizer has no such token.
struct Slot {
  enum class Kind { kText, kBos, kEos, kToken };
  Kind kind = Kind::kText;
  std::string text;  // of kText and kToken
};

using Slots = std::vector<Slot>;

enum class TemplateFamily {
  kPlain,
  kSystemInUser,  // the system text is put in front of the first user's message
  kReasoning,     // answers carry a <think> block, empty when they have none
};

struct ChatFormat {
  std::string name;
  TemplateFamily family = TemplateFamily::kPlain;
  Slots prefix = {};
  Slots system = {};
  Slots user = {};
  Slots assistant = {};
  Slots function = {};
  Slots observation = {};
  ToolFormat function_format = ToolFormat::kDefault;
  ToolFormat tool_format = ToolFormat::kDefault;
  std::string default_system = {};
  std::vector<std::string> stop_words = {};
  // Tokens without which the text would be cut into meaningless pieces.
  std::vector<std::string> required_tokens = {};
  bool efficient_eos = false;          // the end of an answer is marked once, at the very end
  bool replace_eos = false;            // the first stop word becomes the eos token
  bool replace_chat_template = false;  // the tokenizer gets this format as its chat template
  // Of the reasoning family: add the empty thought to the answer (and train on it), or not.
  bool enable_thinking = true;
  bool preserve_thinking = false;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_CHAT_FORMAT_H_
