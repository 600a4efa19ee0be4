#include "common/files.h"
#include "worker/text/ffi_strings.h"
#include "worker/text/tokenizer.h"

namespace everstep {
namespace {

// Larger values stand for "no limit" and are what a reader assumes without the key.
constexpr double kLargestModelMaxLength = 1e18;

Json SavedConfig(const OrderedJson& read) {
  Json config = Json::object();  // sorted by key, as transformers writes it
  for (const auto& [key, value] : read.items()) {
    // tokenizer.json holds the added tokens with their ids.
    if (key == "added_tokens_decoder") continue;
    if (key == "model_max_length" && value.is_number() &&
        value.get<double>() > kLargestModelMaxLength) {
      continue;
    }
    config[key] = Json::parse(value.dump());
  }
  if (!config.contains("tokenizer_class")) config["tokenizer_class"] = "PreTrainedTokenizerFast";
  config["padding_side"] = "right";
  return config;
}

}  // namespace

Status Tokenizer::Save(const std::string& directory) const {
  EverstepBytes json;
  EverstepBytes error;
  if (!everstep_tokenizer_to_json(handle_.get(), &json, &error)) {
    return Internal(directory + ": the tokenizer cannot be written: " + TakeString(error));
  }
  RETURN_IF_ERROR(WriteFileAtomically(directory + "/tokenizer.json", TakeString(json)));

  Json config = SavedConfig(config_);
  const auto set = [&](const char* key, const std::optional<std::string>& token) {
    config[key] = token ? Json(*token) : Json(nullptr);
  };
  set("bos_token", bos_token_);
  set("eos_token", eos_token_);
  set("pad_token", pad_token_);
  set("unk_token", unk_token_);
  // The name that transformers 4 and 5 both read.
  if (!other_special_tokens_.empty()) config["additional_special_tokens"] = other_special_tokens_;
  RETURN_IF_ERROR(
      WriteFileAtomically(directory + "/tokenizer_config.json", DumpJson(config, 2) + "\n"));
  if (!chat_template_) return {};
  return WriteFileAtomically(directory + "/chat_template.jinja", *chat_template_);
}

}  // namespace everstep
