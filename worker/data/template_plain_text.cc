#include "worker/data/template_groups.h"

namespace everstep {
namespace {

std::vector<ChatFormat> InstructionTemplates() {
  return {
      {.name = "default",
       .system = {Text("System: {{content}}"), Eos(), Text("\n")},
       .user = {Text("Human: {{content}}"), Eos(), Text("\nAssistant:")},
       .assistant = {Text("{{content}}"), Eos(), Text("\n")},
       .replace_chat_template = true},
      {.name = "empty", .assistant = {Text("{{content}}")}},
      {.name = "fewshot",
       .assistant = {Text("{{content}}\n\n")},
       .efficient_eos = true,
       .replace_chat_template = true},
      {.name = "alpaca",
       .user = {Text("### Instruction:\n{{content}}\n\n### Response:\n")},
       .assistant = {Text("{{content}}"), Eos(), Text("\n\n")},
       .default_system = "Below is an instruction that describes a task. Write a response that "
                         "appropriately completes the request.\n\n",
       .replace_chat_template = true},
      {.name = "vicuna",
       .user = {Text("USER: {{content}} ASSISTANT:")},
       .default_system = "A chat between a curious user and an artificial intelligence assistant. "
                         "The assistant gives helpful, detailed, and polite answers to the user's "
                         "questions.",
       .replace_chat_template = true},
      {.name = "deepseek",
       .prefix = {Bos()},
       .system = {Text("{{content}}\n\n")},
       .user = {Text("User: {{content}}\n\nAssistant:")}},
      {.name = "deepseekcoder",
       .prefix = {Bos()},
       .user = {Text("### Instruction:\n{{content}}\n### Response:")},
       .assistant = {Text("\n{{content}}\n<|EOT|>\n")},
       .default_system =
           "You are an AI programming assistant, utilizing the DeepSeek Coder model, developed by "
           "DeepSeek Company, and you only answer questions related to computer science. For "
           "politically sensitive questions, security and privacy issues, and other non-computer "
           "science questions, you will refuse to answer.\n"},
      {.name = "openchat",
       .prefix = {Bos()},
       .user = {Text("GPT4 Correct User: {{content}}"), Eos(), Text("GPT4 Correct Assistant:")}},
      {.name = "solar",
       .system = {Text("### System:\n{{content}}\n\n")},
       .user = {Text("### User:\n{{content}}\n\n### Assistant:\n")},
       .efficient_eos = true},
      {.name = "olmo", .prefix = {Eos()}, .user = {Text("<|user|>\n{{content}}<|assistant|>\n")}},
      {.name = "xuanyuan",
       .user = {Text("Human: {{content}} Assistant:")},
       .default_system =
           "以下是用户和人工智能助手之间的对话。用户以Human开头，人工智能助手以Assistant开头，"
           "会对人类提出的问题给出有帮助、高质量、详细和礼貌的回答，并且总是拒绝参与与不道德、"
           "不安全、有争议、政治敏感等相关的话题、问题和指示。\n"},
      {.name = "zephyr",
       .system = {Text("<|system|>\n{{content}}"), Eos()},
       .user = {Text("<|user|>\n{{content}}"), Eos(), Text("<|assistant|>\n")},
       .default_system = "You are Zephyr, a helpful assistant."},
      {.name = "seed_coder",
       .system = {Bos(), Text("system\n{{content}}"), Eos()},
       .user = {Bos(), Text("user\n{{content}}"), Eos(), Bos(), Text("assistant\n")},
       .default_system =
           "You are an AI programming assistant, utilizing the Seed-Coder model, developed by "
           "ByteDance Seed, and you only answer questions related to computer science. For "
           "politically sensitive questions, security and privacy issues, and other non-computer "
           "science questions, you will refuse to answer.\n\n"},
  };
}

// [INST] is ordinary text in the older vocabularies of this family.
std::vector<ChatFormat> InstTemplates() {
  const Slots llama2_user = {Bos(), Text("[INST] {{content}} [/INST]")};
  const Slots llama2_system = {Text("<<SYS>>\n{{content}}\n<</SYS>>\n\n")};
  return {
      {.name = "llama2",
       .family = TemplateFamily::kSystemInUser,
       .system = llama2_system,
       .user = llama2_user},
      {.name = "llama2_zh",
       .family = TemplateFamily::kSystemInUser,
       .system = llama2_system,
       .user = llama2_user,
       .default_system = "You are a helpful assistant. 你是一个乐于助人的助手。"},
      {.name = "mistral",
       .family = TemplateFamily::kSystemInUser,
       .prefix = {Bos()},
       .system = {Text("{{content}}\n\n")},
       .user = {Text("[INST] {{content}}[/INST]")},
       .assistant = {Text(" {{content}}"), Eos()},
       .function = {Text("[TOOL_CALLS] {{content}}"), Eos()},
       .observation = {Text("[TOOL_RESULTS] {\"content\": {{content}}}[/TOOL_RESULTS]")},
       .function_format = ToolFormat::kMistral,
       .tool_format = ToolFormat::kMistral},
      {.name = "ministral",
       .family = TemplateFamily::kSystemInUser,
       .prefix = {Bos()},
       .system = {Text("{{content}}\n\n")},
       .user = {Text("[INST]{{content}}[/INST]")},
       .function = {Text("[TOOL_CALLS]{{content}}"), Eos()},
       .observation = {Text("[TOOL_RESULTS]{\"content\": {{content}}}[/TOOL_RESULTS]")},
       .function_format = ToolFormat::kMistral,
       .tool_format = ToolFormat::kMistral},
      {.name = "mistral_small",
       .prefix = {Bos()},
       .system = {Text("[SYSTEM_PROMPT]{{content}}[/SYSTEM_PROMPT]")},
       .user = {Text("[INST]{{content}}[/INST]")},
       .function = {Text("[TOOL_CALLS]{{content}}"), Eos()},
       .observation = {Text("[TOOL_RESULTS]{\"content\": {{content}}}[/TOOL_RESULTS]")},
       .function_format = ToolFormat::kMistral,
       .tool_format = ToolFormat::kMistral,
       .required_tokens = {"[SYSTEM_PROMPT]", "[INST]", "[/INST]"}},
  };
}

}  // namespace

std::vector<ChatFormat> PlainTextTemplates() {
  std::vector<ChatFormat> all = InstructionTemplates();
  for (ChatFormat& format : InstTemplates()) all.push_back(std::move(format));
  return all;
}

}  // namespace everstep
