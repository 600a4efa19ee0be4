// Finds out what a tokenizer's own chat template puts around messages, for training files without
// a `template`.
#ifndef EVERSTEP_WORKER_DATA_TEMPLATE_PARSE_H_
#define EVERSTEP_WORKER_DATA_TEMPLATE_PARSE_H_

#include "common/clock.h"
#include "common/result.h"
#include "worker/data/chat_format.h"
#include "worker/text/tokenizer.h"

namespace everstep {

// `tokenizer` has a chat template. Renders small conversations with it and takes the slots from
// the differences, as LLaMA-Factory does. An error, with the advice to name a template, when the
// chat template refuses these conversations or gives no usable slots.
Result<ChatFormat> ParseChatTemplate(const Tokenizer& tokenizer, WallTime today);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_TEMPLATE_PARSE_H_
