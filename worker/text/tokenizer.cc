#include "worker/text/tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "common/check.h"
#include "common/files.h"
#include "worker/text/ffi_strings.h"

namespace everstep {
namespace {

// A special token in the configuration is a string, or an object with its text in "content".
std::optional<std::string> TokenText(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

std::optional<std::string> TakeToken(OrderedJson& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end()) return std::nullopt;
  std::optional<std::string> text = TokenText(*it);
  config.erase(key);
  return text;
}

// The classes whose constructors default to true, as in transformers.
bool AddsBosToken(const OrderedJson& config) {
  if (const auto it = config.find("add_bos_token"); it != config.end() && it->is_boolean()) {
    return it->get<bool>();
  }
  const std::string tokenizer_class = config.value("tokenizer_class", "");
  return tokenizer_class.starts_with("LlamaTokenizer") ||
         tokenizer_class.starts_with("CodeLlamaTokenizer") ||
         tokenizer_class.starts_with("GemmaTokenizer");
}

Result<OrderedJson> ReadOptionalObject(const std::string& path) {
  if (!std::filesystem::exists(path)) return OrderedJson::object();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(OrderedJson json, ParseOrderedJson(text, path));
  if (!json.is_object()) return InvalidArgument(path + ": must be a JSON object");
  return json;
}

std::optional<std::string> ChatTemplateOf(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return std::nullopt;
  // Several named templates: "default" is the one that a conversation without tools uses.
  for (const OrderedJson& entry : value) {
    if (entry.is_object() && entry.value("name", "") == "default" && entry.contains("template") &&
        entry["template"].is_string()) {
      return entry["template"].get<std::string>();
    }
  }
  return std::nullopt;
}

}  // namespace

void Tokenizer::Deleter::operator()(EverstepTokenizer* tokenizer) const {
  everstep_tokenizer_free(tokenizer);
}

Result<Tokenizer> Tokenizer::Load(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  if (!std::filesystem::exists(path)) {
    const bool slow_only = std::filesystem::exists(directory + "/tokenizer.model");
    return NotFound(path + ": missing: " +
                    (slow_only ? "only the SentencePiece file tokenizer.model is there; save the "
                                 "tokenizer once with transformers (use_fast=True) to get it"
                               : "model_name_or_path must be a folder with the model's tokenizer "
                                 "files; copy tokenizer.json and tokenizer_config.json into it"));
  }
  ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  Tokenizer tokenizer;
  EverstepTokenizer* handle = nullptr;
  EverstepBytes error;
  if (!everstep_tokenizer_load(FfiText(json), &handle, &error)) {
    return InvalidArgument(path + ": cannot be used as a tokenizer: " + TakeString(error) +
                           "; download the file again");
  }
  tokenizer.handle_.reset(handle);
  RETURN_IF_ERROR(tokenizer.ReadConfig(directory));
  RETURN_IF_ERROR(tokenizer.ApplyTokenizerClass());
  return tokenizer;
}

// transformers 5 builds tokenizers of the Llama class anew from their vocabulary, which changes
// where a space is put in front.
Status Tokenizer::ApplyTokenizerClass() {
  if (!config_.value("tokenizer_class", "").starts_with("LlamaTokenizer")) return {};
  const auto flag = [&](const char* key, bool fallback) {
    const auto it = config_.find(key);
    return it != config_.end() && it->is_boolean() ? it->get<bool>() : fallback;
  };
  EverstepBytes error;
  if (!everstep_tokenizer_use_metaspace(handle_.get(), flag("add_prefix_space", true),
                                        !flag("legacy", false), &error)) {
    return Internal("the tokenizer cannot be set up: " + TakeString(error));
  }
  return {};
}

Status Tokenizer::ReadConfig(const std::string& directory) {
  ASSIGN_OR_RETURN(config_, ReadOptionalObject(directory + "/tokenizer_config.json"));
  ASSIGN_OR_RETURN(const OrderedJson map,
                   ReadOptionalObject(directory + "/special_tokens_map.json"));
  for (const auto& [key, value] : map.items()) {
    if (!config_.contains(key)) config_[key] = value;
  }
  bos_token_ = TakeToken(config_, "bos_token");
  eos_token_ = TakeToken(config_, "eos_token");
  pad_token_ = TakeToken(config_, "pad_token");
  unk_token_ = TakeToken(config_, "unk_token");
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    if (!config_.contains(key)) continue;
    for (const OrderedJson& token : config_[key]) {
      if (auto text = TokenText(token)) other_special_tokens_.push_back(*text);
    }
    config_.erase(key);
  }
  add_bos_token_ = AddsBosToken(config_);

  if (config_.contains("chat_template")) {
    chat_template_ = ChatTemplateOf(config_["chat_template"]);
    config_.erase("chat_template");
  }
  const std::string jinja_path = directory + "/chat_template.jinja";
  if (std::filesystem::exists(jinja_path)) {
    ASSIGN_OR_RETURN(chat_template_, ReadFile(jinja_path));
  }
  return AddConfiguredTokens();
}

Status Tokenizer::AddConfiguredTokens() {
  // Ids have to come out as the configuration says, so they are added in its order.
  if (const auto it = config_.find("added_tokens_decoder"); it != config_.end()) {
    for (const OrderedJson& token : *it) {
      const std::optional<std::string> text = TokenText(token);
      if (!text || TokenId(*text)) continue;
      RETURN_IF_ERROR(AddTokens(std::span(&*text, 1), token.value("special", false)));
    }
  }
  std::vector<std::string> special = other_special_tokens_;
  std::erase_if(special, [](const std::string& token) { return token.empty(); });
  for (const auto& token : {bos_token_, eos_token_, unk_token_, pad_token_}) {
    if (token) special.push_back(*token);
  }
  RETURN_IF_ERROR(AddTokens(special, /*special=*/true));
  return {};
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  return std::move(EncodeBatch(std::span(&text, 1), add_special_tokens).front());
}

std::vector<std::vector<int32_t>> Tokenizer::EncodeBatch(std::span<const std::string_view> texts,
                                                         bool add_special_tokens) const {
  std::vector<std::vector<int32_t>> encoded(texts.size());
  if (texts.empty()) return encoded;
  std::vector<EverstepText> inputs;
  inputs.reserve(texts.size());
  for (std::string_view text : texts) inputs.push_back(FfiText(text));
  EverstepIds ids;
  EverstepIds ends;
  EverstepBytes error;
  if (!everstep_tokenizer_encode(handle_.get(), inputs.data(), inputs.size(), add_special_tokens,
                                 &ids, &ends, &error)) {
    // Any text can be encoded by any tokenizer that loads: this is a defect, and says which.
    std::fprintf(stderr, "tokenizer: %s\n", TakeString(error).c_str());
    EVERSTEP_CHECK(false && "a text could not be encoded");
  }
  size_t begin = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    encoded[i].assign(ids.data + begin, ids.data + ends.data[i]);
    begin = ends.data[i];
  }
  everstep_ids_free(ids);
  everstep_ids_free(ends);
  return encoded;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  const std::vector<uint32_t> unsigned_ids(ids.begin(), ids.end());
  EverstepBytes text;
  EverstepBytes error;
  if (!everstep_tokenizer_decode(handle_.get(), unsigned_ids.data(), unsigned_ids.size(),
                                 skip_special_tokens, &text, &error)) {
    std::fprintf(stderr, "tokenizer: %s\n", TakeString(error).c_str());
    EVERSTEP_CHECK(false && "ids could not be decoded");
  }
  return TakeString(text);
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view token) const {
  const int64_t id = everstep_tokenizer_token_id(handle_.get(), FfiText(token));
  if (id < 0) return std::nullopt;
  return static_cast<int32_t>(id);
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(everstep_tokenizer_vocab_size(handle_.get()));
}

std::optional<int32_t> Tokenizer::bos_id() const {
  return bos_token_ ? TokenId(*bos_token_) : std::nullopt;
}
std::optional<int32_t> Tokenizer::eos_id() const {
  return eos_token_ ? TokenId(*eos_token_) : std::nullopt;
}
std::optional<int32_t> Tokenizer::pad_id() const {
  return pad_token_ ? TokenId(*pad_token_) : std::nullopt;
}

Result<int> Tokenizer::AddTokens(std::span<const std::string> tokens, bool special) {
  std::vector<EverstepText> texts;
  for (const std::string& token : tokens) texts.push_back(FfiText(token));
  size_t new_tokens = 0;
  EverstepBytes error;
  if (!everstep_tokenizer_add_tokens(handle_.get(), texts.data(), texts.size(), special,
                                     &new_tokens, &error)) {
    return InvalidArgument("a token cannot be added to the tokenizer: " + TakeString(error));
  }
  for (const std::string& token : tokens) {
    const bool named =
        token == bos_token_ || token == eos_token_ || token == pad_token_ || token == unk_token_;
    const auto& others = other_special_tokens_;
    if (special && !named && std::find(others.begin(), others.end(), token) == others.end()) {
      other_special_tokens_.push_back(token);
    }
  }
  return static_cast<int>(new_tokens);
}

Result<int> Tokenizer::SetEosToken(const std::string& token) {
  eos_token_ = token;
  return AddTokens(std::span(&token, 1), /*special=*/true);
}

Result<int> Tokenizer::SetPadToken(const std::string& token) {
  pad_token_ = token;
  return AddTokens(std::span(&token, 1), /*special=*/true);
}

}  // namespace everstep
