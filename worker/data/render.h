// Writes a conversation out by a template: pieces of text and of single tokens, not yet tokenized.
#ifndef EVERSTEP_WORKER_DATA_RENDER_H_
#define EVERSTEP_WORKER_DATA_RENDER_H_

#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "worker/data/chat_format.h"
#include "worker/data/conversation.h"

namespace everstep {

struct RenderedTurn {
  Slots source;  // what the user, the system or a tool says; texts are final
  Slots target;  // what the model shall learn to answer
};

struct RenderOptions {
  // Of reasoning templates: take the thoughts out of all answers but the last.
  bool drop_history_thoughts = false;
  WallTime today = {};  // for tool prompts with a date
};

// `conversation` is valid (see Conversation). Errors say what is wrong with its tools or calls.
Result<std::vector<RenderedTurn>> Render(const ChatFormat& format, const Conversation& conversation,
                                         const RenderOptions& options);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_RENDER_H_
