// The entries of the template catalog, by kind. An entry leaves out what has its usual value: text
// around the content of a message: none; an answer ends with eos unless efficient_eos; function
// turns look like answers, observations like user messages.
#ifndef EVERSTEP_WORKER_DATA_TEMPLATE_GROUPS_H_
#define EVERSTEP_WORKER_DATA_TEMPLATE_GROUPS_H_

#include <string>
#include <vector>

#include "worker/data/chat_format.h"

namespace everstep {

inline Slot Text(std::string text) { return {Slot::Kind::kText, std::move(text)}; }
inline Slot Token(std::string text) { return {Slot::Kind::kToken, std::move(text)}; }
inline Slot Bos() { return {Slot::Kind::kBos, ""}; }
inline Slot Eos() { return {Slot::Kind::kEos, ""}; }

// Roles are written as ordinary text.
std::vector<ChatFormat> PlainTextTemplates();
// <|im_start|>role ... <|im_end|>
std::vector<ChatFormat> ChatMlTemplates();
// Roles have tokens of their own.
std::vector<ChatFormat> SpecialTokenTemplates();

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_TEMPLATE_GROUPS_H_
