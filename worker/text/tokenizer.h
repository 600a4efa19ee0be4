// A Hugging Face tokenizer: tokenizer.json (run by the `tokenizers` crate) and what
// tokenizer_config.json says beside it.
//
// Movable, not copyable. Const members may be called from several threads at once.
#ifndef EVERSTEP_WORKER_TEXT_TOKENIZER_H_
#define EVERSTEP_WORKER_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"

struct EverstepTokenizer;  // of text_ffi.h

namespace everstep {

class Tokenizer {
 public:
  // Reads `directory`/tokenizer.json, tokenizer_config.json, special_tokens_map.json and
  // chat_template.jinja; only the first is required. A missing or malformed file is an error that
  // names the file and the remedy. Tokens that only the configuration names are added, as
  // transformers does.
  static Result<Tokenizer> Load(const std::string& directory);

  // Text that is not UTF-8 is encoded with U+FFFD in the place of the bad bytes.
  std::vector<int32_t> Encode(std::string_view text, bool add_special_tokens) const;
  // Element i = Encode(texts[i], add_special_tokens); runs on all cores.
  std::vector<std::vector<int32_t>> EncodeBatch(std::span<const std::string_view> texts,
                                                bool add_special_tokens) const;
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

  std::optional<int32_t> TokenId(std::string_view token) const;
  // Highest usable id plus one, in the usual case without holes; added tokens included.
  int32_t vocab_size() const;

  const std::optional<std::string>& bos_token() const { return bos_token_; }
  const std::optional<std::string>& eos_token() const { return eos_token_; }
  const std::optional<std::string>& pad_token() const { return pad_token_; }
  const std::optional<std::string>& unk_token() const { return unk_token_; }
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;
  // What `add_bos_token` of the configuration says; LLaMA-Factory's pt stage reads it.
  bool add_bos_token() const { return add_bos_token_; }

  // The token is added as a special one when the vocabulary lacks it. Returns how many ids are new.
  Result<int> SetEosToken(const std::string& token);
  Result<int> SetPadToken(const std::string& token);
  // Returns how many ids are new.
  Result<int> AddTokens(std::span<const std::string> tokens, bool special);

  // tokenizer_config.json as it was read, less the special tokens and the chat template, which
  // have accessors.
  const OrderedJson& config() const { return config_; }
  // Empty when the model has none.
  const std::optional<std::string>& chat_template() const { return chat_template_; }
  void set_chat_template(std::string text) { chat_template_ = std::move(text); }

  // Writes tokenizer.json, tokenizer_config.json and, if there is one, chat_template.jinja into
  // `directory`, in the layout of transformers 5.
  Status Save(const std::string& directory) const;

 private:
  struct Deleter {
    void operator()(EverstepTokenizer* tokenizer) const;
  };

  Tokenizer() = default;
  Status ReadConfig(const std::string& directory);
  Status AddConfiguredTokens();
  Status ApplyTokenizerClass();

  std::unique_ptr<EverstepTokenizer, Deleter> handle_;
  OrderedJson config_ = OrderedJson::object();
  std::optional<std::string> bos_token_;
  std::optional<std::string> eos_token_;
  std::optional<std::string> pad_token_;
  std::optional<std::string> unk_token_;
  std::vector<std::string> other_special_tokens_;
  bool add_bos_token_ = false;
  std::optional<std::string> chat_template_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_TEXT_TOKENIZER_H_
