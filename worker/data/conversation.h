// The common form of every data set: a conversation.
#ifndef EVERSTEP_WORKER_DATA_CONVERSATION_H_
#define EVERSTEP_WORKER_DATA_CONVERSATION_H_

#include <memory>
#include <string>
#include <vector>

#include "worker/data/row_table.h"

namespace everstep {

enum class Role { kUser, kAssistant, kObservation, kFunction };

struct Message {
  Role role = Role::kUser;
  std::string content;
};

struct Conversation {
  // User (or observation) and assistant (or function) in turn, a user's message first. Valid when
  // `prompt` has an odd number of messages and `response` exactly one; others are dropped.
  std::vector<Message> prompt;
  std::vector<Message> response;
  std::string system;
  std::string tools;  // JSON text of a list, or empty
  // Where it was read, for messages.
  std::shared_ptr<const RowOrigins> origins;
  size_t row = 0;

  std::string Where() const { return origins ? origins->Where(row) : ""; }
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_CONVERSATION_H_
