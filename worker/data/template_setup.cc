#include "worker/data/template_setup.h"

#include "common/strings.h"
#include "worker/data/template_catalog.h"
#include "worker/data/template_parse.h"

namespace everstep {
namespace {

std::string Listed(const std::vector<std::string_view>& names) {
  return Join({names.begin(), names.end()}, ", ");
}

Result<ChatFormat> ChooseTemplate(const TrainConfig& config, const Tokenizer& tokenizer,
                                  WallTime today, std::vector<std::string>& warnings) {
  const std::string& name = config.data.template_name;
  if (!name.empty()) {
    if (std::optional<ChatFormat> format = FindTemplate(name)) return *std::move(format);
    const auto known = TemplateNames();
    return InvalidArgument("template: unknown template '" + name + "'" + DidYouMean(name, known) +
                           "; known: " + Listed(known));
  }
  if (config.finetuning.stage == Stage::kSft && tokenizer.chat_template()) {
    warnings.push_back(
        "template: not given, so the format is taken from the tokenizer's own chat template");
    return ParseChatTemplate(tokenizer, today);
  }
  if (config.finetuning.stage == Stage::kSft) {
    warnings.push_back(
        "template: not given, and the tokenizer has no chat template: messages are joined without "
        "any marks (template: empty)");
  }
  return *FindTemplate("empty");
}

Status ApplyOverrides(const TrainConfig& config, ChatFormat& format) {
  const DataArguments& data = config.data;
  if (data.train_on_prompt && format.efficient_eos) {
    return InvalidArgument("train_on_prompt: cannot be used with template '" + format.name +
                           "', which marks the end of answers only once; set it to false");
  }
  if (!data.tool_format.empty()) {
    const std::optional<ToolFormat> tool_format = FindToolFormat(data.tool_format);
    if (!tool_format) {
      const auto known = ToolFormatNames();
      return InvalidArgument("tool_format: unknown format '" + data.tool_format + "'" +
                             DidYouMean(data.tool_format, known) + "; known: " + Listed(known));
    }
    format.tool_format = *tool_format;
    format.function_format = *tool_format;
    format.function = {Slot{Slot::Kind::kText, "{{content}}"}};
    if (!format.efficient_eos) format.function.push_back(Slot{Slot::Kind::kEos, ""});
  }
  if (!data.default_system.empty()) format.default_system = data.default_system;
  format.enable_thinking = data.enable_thinking;
  format.preserve_thinking = data.preserve_thinking;
  return {};
}

// Without its tokens a template's marks would be trained as meaningless pieces of text.
Status CheckRequiredTokens(const TrainConfig& config, const Tokenizer& tokenizer,
                           TemplateSetup& setup) {
  for (const std::string& token : setup.format.required_tokens) {
    if (tokenizer.TokenId(token)) continue;
    const std::string problem = "template: '" + setup.format.name + "' needs the token '" + token +
                                "', which the tokenizer of '" + config.model.model_name_or_path +
                                "' lacks";
    if (!setup.resize_vocab) {
      return InvalidArgument(problem +
                             "; choose the template of this model, or let the vocabulary grow "
                             "with 'resize_vocab: true' and 'add_special_tokens'");
    }
    setup.warnings.push_back(problem + ": it is written as ordinary text");
  }
  return {};
}

// Returns how many ids are new.
Result<int> AddStopWords(const ChatFormat& format, Tokenizer& tokenizer) {
  int new_tokens = 0;
  std::span<const std::string> stop_words = format.stop_words;
  if (format.replace_eos && tokenizer.eos_token() != stop_words.front()) {
    ASSIGN_OR_RETURN(const int added, tokenizer.SetEosToken(stop_words.front()));
    new_tokens += added;
  }
  if (format.replace_eos) stop_words = stop_words.subspan(1);
  if (!tokenizer.eos_token()) {
    ASSIGN_OR_RETURN(const int added, tokenizer.SetEosToken("<|endoftext|>"));
    new_tokens += added;
  }
  if (!tokenizer.pad_token()) {
    ASSIGN_OR_RETURN(const int added, tokenizer.SetPadToken(*tokenizer.eos_token()));
    new_tokens += added;
  }
  ASSIGN_OR_RETURN(const int added, tokenizer.AddTokens(stop_words, /*special=*/true));
  return new_tokens + added;
}

// "'text' + content + 'text'": a Jinja expression of the slots.
std::string JinjaExpression(const Slots& slots, const Tokenizer& tokenizer,
                            const std::string& variable) {
  constexpr std::string_view kPlaceholder = "{{content}}";
  std::vector<std::string> terms;
  const auto add_text = [&](std::string_view text) {
    if (text.empty()) return;
    std::string quoted = "'";
    for (const char c : text) {
      if (c == '\'' || c == '\\') quoted += '\\';
      quoted += c;
    }
    terms.push_back(quoted + "'");
  };
  for (const Slot& slot : slots) {
    const auto& token =
        slot.kind == Slot::Kind::kBos ? tokenizer.bos_token() : tokenizer.eos_token();
    if (slot.kind == Slot::Kind::kBos || slot.kind == Slot::Kind::kEos) {
      if (token) add_text(*token);
      continue;
    }
    const size_t found = slot.text.find(kPlaceholder);
    add_text(std::string_view(slot.text).substr(0, found));
    if (found == std::string::npos) continue;
    terms.push_back(variable);
    add_text(std::string_view(slot.text).substr(found + kPlaceholder.size()));
  }
  return terms.empty() ? "''" : Join(terms, " + ");
}

}  // namespace

std::string JinjaChatTemplate(const ChatFormat& format, const Tokenizer& tokenizer) {
  const auto print = [&](const Slots& slots, const std::string& variable) {
    return "{{ " + JinjaExpression(slots, tokenizer, variable) + " }}";
  };
  const Slots default_system = {Slot{Slot::Kind::kText, format.default_system}};
  const std::string system = JinjaExpression(format.system, tokenizer, "system_message");
  const bool in_user = format.family == TemplateFamily::kSystemInUser;
  std::string jinja;
  if (!format.prefix.empty()) jinja += print(format.prefix, "");
  jinja += "{% set system_message = " + JinjaExpression(default_system, tokenizer, "") + " %}";
  jinja +=
      "{% set turns = messages %}"
      "{% if messages and messages[0]['role'] == 'system' %}"
      "{% set system_message = messages[0]['content'] %}{% set turns = messages[1:] %}"
      "{% endif %}";
  if (!in_user) jinja += "{% if system_message %}{{ " + system + " }}{% endif %}";
  jinja += "{% for message in turns %}{% set content = message['content'] %}";
  if (in_user) {
    jinja += "{% if loop.first and system_message %}{% set content = " + system +
             " + content %}{% endif %}";
  }
  return jinja + "{% if message['role'] == 'user' %}" + print(format.user, "content") +
         "{% elif message['role'] == 'assistant' %}" + print(format.assistant, "content") +
         "{% endif %}{% endfor %}";
}

Result<TemplateSetup> SetUpTemplate(const TrainConfig& config, Tokenizer& tokenizer,
                                    WallTime today) {
  if (config.model.split_special_tokens) {
    return InvalidArgument(
        "split_special_tokens: is not supported (templates rely on special tokens); remove it");
  }
  TemplateSetup setup;
  ASSIGN_OR_RETURN(const int plain, tokenizer.AddTokens(config.model.add_tokens, false));
  ASSIGN_OR_RETURN(const int special, tokenizer.AddTokens(config.model.add_special_tokens, true));
  setup.resize_vocab = config.model.resize_vocab || plain + special > 0;
  ASSIGN_OR_RETURN(setup.format, ChooseTemplate(config, tokenizer, today, setup.warnings));
  RETURN_IF_ERROR(ApplyOverrides(config, setup.format));

  const bool text_only = config.finetuning.stage == Stage::kPt;
  if (!setup.resize_vocab && !text_only)
    RETURN_IF_ERROR(CheckRequiredTokens(config, tokenizer, setup));
  ASSIGN_OR_RETURN(const int stop_words, AddStopWords(setup.format, tokenizer));
  if (setup.resize_vocab && !text_only)
    RETURN_IF_ERROR(CheckRequiredTokens(config, tokenizer, setup));
  setup.new_tokens = plain + special + stop_words;
  if (stop_words > 0 && !setup.resize_vocab) {
    setup.warnings.push_back(
        "template: " + std::to_string(stop_words) +
        " stop words are new to the tokenizer; set 'resize_vocab: true' if data contains them");
  }
  if (!tokenizer.chat_template() || setup.format.replace_chat_template) {
    tokenizer.set_chat_template(JinjaChatTemplate(setup.format, tokenizer));
  }
  return setup;
}

}  // namespace everstep
