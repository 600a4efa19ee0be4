// Times as Kubernetes writes them.
#ifndef EVERSTEP_OPERATOR_API_TIMESTAMP_H_
#define EVERSTEP_OPERATOR_API_TIMESTAMP_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/clock.h"

namespace everstep {

// Seconds since 1970 of "2026-11-30T12:00:00Z" (a fraction of a second is cut off); nothing for
// another text.
std::optional<int64_t> ParseTimestamp(const std::string& text);

int64_t UnixSeconds(WallTime time);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_API_TIMESTAMP_H_
