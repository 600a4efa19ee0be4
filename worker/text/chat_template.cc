#include "worker/text/chat_template.h"

#include "worker/text/ffi_strings.h"

namespace everstep {

Result<std::string> RenderChatTemplate(std::string_view chat_template, const Tokenizer& tokenizer,
                                       const ChatTemplateInput& input) {
  OrderedJson context;
  context["messages"] = input.messages;
  context["tools"] = input.tools;
  context["add_generation_prompt"] = input.add_generation_prompt;
  const auto add_token = [&](const char* name, const std::optional<std::string>& token) {
    if (token) context[name] = *token;
  };
  add_token("bos_token", tokenizer.bos_token());
  add_token("eos_token", tokenizer.eos_token());
  add_token("pad_token", tokenizer.pad_token());
  add_token("unk_token", tokenizer.unk_token());

  const std::string context_text = DumpJson(context);
  const int64_t seconds =
      std::chrono::duration_cast<std::chrono::seconds>(input.now.time_since_epoch()).count();
  EverstepBytes text;
  EverstepBytes error;
  if (!everstep_chat_render(FfiText(chat_template), FfiText(context_text), seconds, &text,
                            &error)) {
    return InvalidArgument("chat template: " + TakeString(error));
  }
  return TakeString(text);
}

}  // namespace everstep
