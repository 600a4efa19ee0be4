#include "worker/config/known_keys.h"

namespace everstep {
namespace {

constexpr KnownKey kKeys[] = {
    {"template", Support::kSupported, "null",
     "name of the chat template; null takes the tokenizer's own"},
    {"dataset", Support::kSupported, "null",
     "names in dataset_info.json, with commas between them; required"},
    {"eval_dataset", Support::kSupported, "null", "names of the data sets to evaluate on"},
    {"dataset_dir", Support::kSupported, "data", "the folder with dataset_info.json"},
    {"media_dir", Support::kNoEffect, "null", "models read text alone"},
    {"cutoff_len", Support::kSupported, "2048", "longest example in tokens"},
    {"train_on_prompt", Support::kSupported, "false", "the prompt counts in the loss too (sft)"},
    {"mask_history", Support::kSupported, "false", "only the last turn counts in the loss (sft)"},
    {"streaming", Support::kRefused, "false",
     "reading data as a stream is not done yet: remove streaming (and buffer_size)"},
    {"buffer_size", Support::kNoEffect, "16384", "belongs to streaming"},
    {"mix_strategy", Support::kSupported, "concat", "concat, interleave_under or interleave_over"},
    {"interleave_probs", Support::kSupported, "null", "share of each data set when interleaved"},
    {"overwrite_cache", Support::kNoEffect, "false", "prepared data is not cached"},
    {"preprocessing_batch_size", Support::kSupported, "1000", "examples that are packed together"},
    {"preprocessing_num_workers", Support::kSupported, "null",
     "as in LLaMA-Factory, the data is cut into so many shards before packing"},
    {"max_samples", Support::kSupported, "null", "the first so many examples of each data set"},
    {"eval_num_beams", Support::kNoEffect, "null", "is for generation"},
    {"ignore_pad_token_for_loss", Support::kSupported, "true",
     "padding does not count in the loss; false is refused"},
    {"val_size", Support::kSupported, "0",
     "share (below 1) or number of examples kept for evaluation"},
    {"eval_on_each_dataset", Support::kSupported, "false", "evaluates on each data set by itself"},
    {"packing", Support::kSupported, "null",
     "several examples in one row; null is true for pt alone"},
    {"neat_packing", Support::kSupported, "false",
     "packing whose examples do not see each other (sft)"},
    {"tool_format", Support::kSupported, "null",
     "how tools are written into the prompt; null takes the template's"},
    {"default_system", Support::kSupported, "null", "system text where the data has none"},
    {"enable_thinking", Support::kSupported, "true", "thinking part of reasoning templates"},
    {"preserve_thinking", Support::kSupported, "false", "keeps the thinking part of earlier turns"},
    {"tokenized_path", Support::kRefused, "null",
     "keeping prepared data on disk is not done yet: remove it, data is prepared at every start"},
    {"data_shared_file_system", Support::kNoEffect, "false", "every rank reads the data by itself"},
    {"do_sample", Support::kNoEffect, "true", "is for generation"},
    {"temperature", Support::kNoEffect, "0.95", "is for generation"},
    {"top_p", Support::kNoEffect, "0.7", "is for generation"},
    {"top_k", Support::kNoEffect, "50", "is for generation"},
    {"num_beams", Support::kNoEffect, "1", "is for generation"},
    {"max_length", Support::kNoEffect, "1024", "is for generation"},
    {"max_new_tokens", Support::kNoEffect, "1024", "is for generation"},
    {"repetition_penalty", Support::kNoEffect, "1.0", "is for generation"},
    {"length_penalty", Support::kNoEffect, "1.0", "is for generation"},
    {"skip_special_tokens", Support::kNoEffect, "true", "is for generation"},
};

}  // namespace

std::span<const KnownKey> DataKeys() { return kKeys; }

}  // namespace everstep
