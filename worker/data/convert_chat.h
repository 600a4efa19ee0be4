// The message lists of the sharegpt and openai formattings.
#ifndef EVERSTEP_WORKER_DATA_CONVERT_CHAT_H_
#define EVERSTEP_WORKER_DATA_CONVERT_CHAT_H_

#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "worker/data/conversation.h"
#include "worker/data/dataset_info.h"

namespace everstep {

struct ChatMessages {
  std::vector<Message> messages;      // empty when the turns are out of order
  std::optional<std::string> system;  // of a leading system message
};

// sharegpt: the tags must alternate between user/observation and assistant/function.
Result<ChatMessages> ReadSharegptMessages(const DatasetTags& tags, const OrderedJson& messages);

// openai: assistant messages may carry tool_calls; tool results that follow each other are joined.
Result<ChatMessages> ReadOpenAiMessages(const DatasetTags& tags, const OrderedJson& messages);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_CONVERT_CHAT_H_
