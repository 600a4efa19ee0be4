// Renders the Jinja chat templates that models carry, with what Hugging Face's
// apply_chat_template offers to them: Python's string methods, loop controls, tojson,
// raise_exception, strftime_now, the special tokens.
#ifndef EVERSTEP_WORKER_TEXT_CHAT_TEMPLATE_H_
#define EVERSTEP_WORKER_TEXT_CHAT_TEMPLATE_H_

#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/json.h"
#include "common/result.h"
#include "worker/text/tokenizer.h"

namespace everstep {

struct ChatTemplateInput {
  OrderedJson messages = OrderedJson::array();  // [{"role": ..., "content": ...}, ...]
  OrderedJson tools = nullptr;
  bool add_generation_prompt = false;
  WallTime now;  // what strftime_now prints, in UTC
};

// The text of `input` by `chat_template`; special tokens come from `tokenizer`. Syntax errors and
// the template's own raise_exception come back with their line.
Result<std::string> RenderChatTemplate(std::string_view chat_template, const Tokenizer& tokenizer,
                                       const ChatTemplateInput& input);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_TEXT_CHAT_TEMPLATE_H_
