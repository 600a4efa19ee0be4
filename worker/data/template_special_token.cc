#include "worker/data/template_groups.h"

namespace everstep {
namespace {

// Llama 3 and 4 differ in the spelling of their header and end-of-turn tokens.
ChatFormat LlamaHeaders(std::string name, const std::string& start, const std::string& end,
                        const std::string& end_of_turn, const std::string& end_of_message) {
  const std::string answer = start + "assistant" + end + "\n\n";
  const auto turn = [&](const std::string& role) {
    return start + role + end + "\n\n{{content}}" + end_of_turn;
  };
  return {
      .name = std::move(name),
      .prefix = {Bos()},
      .system = {Text(turn("system"))},
      .user = {Text(turn("user") + answer)},
      .assistant = {Text("{{content}}" + end_of_turn)},
      .observation = {Text(turn("ipython") + answer)},
      .function_format = ToolFormat::kLlama3,
      .tool_format = ToolFormat::kLlama3,
      .stop_words = {end_of_turn, end_of_message},
      .required_tokens = {start, end, end_of_turn},
      .replace_eos = true,
  };
}

ChatFormat Gemma(std::string name) {
  return {
      .name = std::move(name),
      .family = TemplateFamily::kSystemInUser,
      .prefix = {Bos()},
      .system = {Text("{{content}}\n\n")},
      .user = {Text("<start_of_turn>user\n{{content}}<end_of_turn>\n<start_of_turn>model\n")},
      .assistant = {Text("{{content}}<end_of_turn>\n")},
      .observation = {Text("<start_of_turn>tool\n{{content}}<end_of_turn>\n"
                           "<start_of_turn>model\n")},
      .stop_words = {"<end_of_turn>"},
      .required_tokens = {"<start_of_turn>", "<end_of_turn>"},
      .replace_eos = true,
  };
}

ChatFormat Gemma2() {
  ChatFormat format = Gemma("gemma2");
  format.stop_words = {"<eos>", "<end_of_turn>"};
  format.replace_eos = false;
  format.efficient_eos = true;
  return format;
}

ChatFormat DeepSeek(std::string name, TemplateFamily family) {
  return {
      .name = std::move(name),
      .family = family,
      .prefix = {Bos()},
      .user = {Text("<｜User｜>{{content}}<｜Assistant｜>")},
      .required_tokens = {"<｜User｜>", "<｜Assistant｜>"},
  };
}

ChatFormat Phi(std::string name) {
  return {
      .name = std::move(name),
      .system = {Text("<|system|>\n{{content}}<|end|>\n")},
      .user = {Text("<|user|>\n{{content}}<|end|>\n<|assistant|>\n")},
      .assistant = {Text("{{content}}<|end|>\n")},
      .stop_words = {"<|end|>"},
      .required_tokens = {"<|end|>"},
      .replace_eos = true,
  };
}

ChatFormat Starchat() {
  ChatFormat format = Phi("starchat");
  format.user = {Text("<|user|>\n{{content}}<|end|>\n<|assistant|>")};
  format.replace_eos = false;
  return format;
}

ChatFormat Phi4Mini() {
  ChatFormat format = Phi("phi4_mini");
  format.system = {Text("<|system|>{{content}}<|end|>")};
  format.user = {Text("<|user|>{{content}}<|end|><|assistant|>")};
  format.assistant = {Text("{{content}}<|end|>")};
  format.tool_format = ToolFormat::kPhi4Mini;
  return format;
}

}  // namespace

std::vector<ChatFormat> SpecialTokenTemplates() {
  const std::string openchat_role = "<|start_header_id|>GPT4 Correct ";
  return {
      LlamaHeaders("llama3", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                   "<|eom_id|>"),
      LlamaHeaders("llama4", "<|header_start|>", "<|header_end|>", "<|eot|>", "<|eom|>"),
      {.name = "openchat-3.6",
       .prefix = {Bos()},
       .user = {Text(openchat_role + "User<|end_header_id|>\n\n{{content}}<|eot_id|>" +
                     openchat_role + "Assistant<|end_header_id|>\n\n")},
       .stop_words = {"<|eot_id|>"},
       .required_tokens = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
      Gemma("gemma"),
      Gemma2(),
      DeepSeek("deepseek3", TemplateFamily::kPlain),
      DeepSeek("deepseekr1", TemplateFamily::kReasoning),
      Phi("phi"),
      Phi("phi_small"),
      Phi4Mini(),
      Starchat(),
      {.name = "granite3",
       .system = {Text("<|start_of_role|>system<|end_of_role|>{{content}}<|end_of_text|>\n")},
       .user = {Text("<|start_of_role|>user<|end_of_role|>{{content}}<|end_of_text|>\n"
                     "<|start_of_role|>assistant<|end_of_role|>")},
       .assistant = {Text("{{content}}<|end_of_text|>\n")},
       .required_tokens = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"}},
      {.name = "cohere",
       .prefix = {Bos()},
       .system = {Text("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{{content}}"
                       "<|END_OF_TURN_TOKEN|>")},
       .user = {Text("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{{content}}<|END_OF_TURN_TOKEN|>"
                     "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>")},
       .required_tokens = {"<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"}},
      {.name = "yuan",
       .user = {Text("{{content}}"), Token("<sep>")},
       .assistant = {Text("{{content}}<eod>\n")},
       .stop_words = {"<eod>"},
       .required_tokens = {"<sep>", "<eod>"}},
  };
}

}  // namespace everstep
