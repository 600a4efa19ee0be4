/* C interface of the Rust library in src/ (tokenizers and minijinja). Only tokenizer.cc and
 * chat_template.cc include it.
 *
 * Functions that return bool return true on success; on failure `*error` holds one line of text,
 * freed with everstep_bytes_free. Outputs are written on success only. Nothing is kept of the
 * arguments after a call. A tokenizer may be used by several threads at once as long as nobody
 * adds tokens to it. */
#ifndef EVERSTEP_WORKER_TEXT_TEXT_FFI_H_
#define EVERSTEP_WORKER_TEXT_TEXT_FFI_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char* data; /* UTF-8, not terminated */
  size_t size;
} EverstepText;

typedef struct {
  uint8_t* data;
  size_t size;
} EverstepBytes;

typedef struct {
  uint32_t* data;
  size_t size;
} EverstepIds;

typedef struct EverstepTokenizer EverstepTokenizer;

void everstep_bytes_free(EverstepBytes bytes);
void everstep_ids_free(EverstepIds ids);

/* `json` is the content of a tokenizer.json. */
bool everstep_tokenizer_load(EverstepText json, EverstepTokenizer** out, EverstepBytes* error);
void everstep_tokenizer_free(EverstepTokenizer* tokenizer);

/* Encodes `count` texts, in parallel when there are several. The ids of text i are
 * ids[ends[i-1] .. ends[i]). Bytes that are not UTF-8 count as U+FFFD. */
bool everstep_tokenizer_encode(const EverstepTokenizer* tokenizer, const EverstepText* texts,
                               size_t count, bool add_special_tokens, EverstepIds* ids,
                               EverstepIds* ends, EverstepBytes* error);
bool everstep_tokenizer_decode(const EverstepTokenizer* tokenizer, const uint32_t* ids,
                               size_t count, bool skip_special_tokens, EverstepBytes* out,
                               EverstepBytes* error);

/* -1 when the vocabulary lacks it. */
int64_t everstep_tokenizer_token_id(const EverstepTokenizer* tokenizer, EverstepText token);
/* Added tokens included. */
size_t everstep_tokenizer_vocab_size(const EverstepTokenizer* tokenizer);

/* Registers tokens that are not registered yet; those in the vocabulary keep their id.
 * `*new_tokens` = how many ids are new. */
bool everstep_tokenizer_add_tokens(EverstepTokenizer* tokenizer, const EverstepText* tokens,
                                   size_t count, bool special, size_t* new_tokens,
                                   EverstepBytes* error);
/* Where the tokenizer puts a SentencePiece space before every text by a normalizer, it gets the
 * Metaspace pre-tokenizer in its place, which leaves texts alone that start with a space. `prepend`
 * false: no space at all; `first_only`: not after special tokens. Other tokenizers stay as they
 * are. */
bool everstep_tokenizer_use_metaspace(EverstepTokenizer* tokenizer, bool prepend, bool first_only,
                                      EverstepBytes* error);
/* The tokenizer.json of its present state. */
bool everstep_tokenizer_to_json(const EverstepTokenizer* tokenizer, EverstepBytes* out,
                                EverstepBytes* error);

/* Renders a chat template; `context_json` is an object with the template's variables.
 * `unix_seconds` is the time that strftime_now prints (UTC). */
bool everstep_chat_render(EverstepText chat_template, EverstepText context_json,
                          int64_t unix_seconds, EverstepBytes* out, EverstepBytes* error);

#ifdef __cplusplus
}
#endif

#endif /* EVERSTEP_WORKER_TEXT_TEXT_FFI_H_ */
