#include "worker/data/template_groups.h"

namespace everstep {
namespace {

ChatFormat ChatMl(std::string name) {
  return {
      .name = std::move(name),
      .system = {Text("<|im_start|>system\n{{content}}<|im_end|>\n")},
      .user = {Text("<|im_start|>user\n{{content}}<|im_end|>\n<|im_start|>assistant\n")},
      .assistant = {Text("{{content}}<|im_end|>\n")},
      .stop_words = {"<|im_end|>"},
      .required_tokens = {"<|im_start|>", "<|im_end|>"},
  };
}

ChatFormat WithToolRole(ChatFormat format) {
  format.observation = {Text("<|im_start|>tool\n{{content}}<|im_end|>\n<|im_start|>assistant\n")};
  return format;
}

ChatFormat WithSystem(ChatFormat format, std::string default_system) {
  format.default_system = std::move(default_system);
  return format;
}

ChatFormat WithBos(ChatFormat format) {
  format.prefix = {Bos()};
  return format;
}

// The general ChatML templates take over the tokenizer's eos and chat template.
ChatFormat General(std::string name) {
  ChatFormat format = WithToolRole(ChatMl(std::move(name)));
  format.stop_words = {"<|im_end|>", "<|im_start|>"};
  format.replace_eos = true;
  format.replace_chat_template = true;
  return format;
}

ChatFormat Qwen(std::string name) {
  ChatFormat format = ChatMl(std::move(name));
  format.observation = {
      Text("<|im_start|>user\n<tool_response>\n{{content}}\n</tool_response><|im_end|>\n"
           "<|im_start|>assistant\n")};
  format.function_format = ToolFormat::kQwen;
  format.tool_format = ToolFormat::kQwen;
  format.replace_eos = true;
  return format;
}

ChatFormat Qwen3() {
  ChatFormat format = Qwen("qwen3");
  format.family = TemplateFamily::kReasoning;
  return format;
}

ChatFormat Sailor() {
  ChatFormat format = ChatMl("sailor");
  format.user = {Text("<|im_start|>question\n{{content}}<|im_end|>\n<|im_start|>answer\n")};
  format.default_system =
      "You are an AI assistant named Sailor created by Sea AI Lab. Your answer should be friendly, "
      "unbiased, faithful, informative and detailed.";
  return format;
}

ChatFormat Phi4() {
  return {
      .name = "phi4",
      .system = {Text("<|im_start|>system<|im_sep|>{{content}}<|im_end|>")},
      .user = {Text("<|im_start|>user<|im_sep|>{{content}}<|im_end|>"
                    "<|im_start|>assistant<|im_sep|>")},
      .assistant = {Text("{{content}}<|im_end|>")},
      .stop_words = {"<|im_end|>"},
      .required_tokens = {"<|im_start|>", "<|im_sep|>", "<|im_end|>"},
      .replace_eos = true,
  };
}

constexpr const char* kInternSystem =
    "You are an AI assistant whose name is InternLM (书生·浦语).\n"
    "- InternLM (书生·浦语) is a conversational language model that is developed by Shanghai AI "
    "Laboratory (上海人工智能实验室). It is designed to be helpful, honest, and harmless.\n"
    "- InternLM (书生·浦语) can understand and communicate fluently in the language chosen by the "
    "user such as English and 中文.";

}  // namespace

std::vector<ChatFormat> ChatMlTemplates() {
  return {
      General("chatml"),
      WithSystem(General("chatml_de"), "Du bist ein freundlicher und hilfsbereiter KI-Assistent."),
      WithSystem(Qwen("qwen"),
                 "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
      Qwen3(),
      Qwen("qwen3_nothink"),
      ChatMl("smollm"),
      WithSystem(ChatMl("smollm2"),
                 "You are a helpful AI assistant named SmolLM, trained by Hugging Face."),
      ChatMl("yi"),
      WithBos(WithToolRole(ChatMl("cpm4"))),
      WithSystem(WithToolRole(ChatMl("opencoder")),
                 "You are OpenCoder, created by OpenCoder Team."),
      WithSystem(WithBos(ChatMl("intern2")), kInternSystem),
      Sailor(),
      Phi4(),
  };
}

}  // namespace everstep
