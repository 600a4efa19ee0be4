// Goodput: the part of the time since the first step that went into steps which count. Pure.
#ifndef EVERSTEP_OPERATOR_CORE_GOODPUT_H_
#define EVERSTEP_OPERATOR_CORE_GOODPUT_H_

#include <cstdint>

#include "common/json.h"

namespace everstep {

// Adds to status.goodput the steps up to `step`, each of `step_seconds`, since the last one that
// was counted; a step that is reported again (it was redone) does not count twice. Called before
// status.progress is written.
void CountGoodput(OrderedJson& status, int64_t step, double step_seconds, int64_t now_unix_seconds);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CORE_GOODPUT_H_
