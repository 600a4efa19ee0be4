// Text helpers for messages that people read.
#ifndef EVERSTEP_COMMON_STRINGS_H_
#define EVERSTEP_COMMON_STRINGS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace everstep {

// The entry of `known` nearest to `name` by edit distance, or "" when none is near (more than a
// third of the name would have to change).
std::string NearestName(std::string_view name, std::span<const std::string_view> known);

// " (did you mean 'x'?)" for the nearest known name, or "".
std::string DidYouMean(std::string_view name, std::span<const std::string_view> known);

std::string Join(const std::vector<std::string>& parts, std::string_view separator);
// Splits at `separator` and trims white space; empty parts are dropped.
std::vector<std::string> SplitAndTrim(std::string_view text, char separator);
std::string_view Trim(std::string_view text);

// "512 B", "1.5 MiB".
std::string FormatBytes(uint64_t bytes);
// "0:01:05", as Python's str(timedelta) with whole seconds.
std::string FormatDuration(double seconds);

}  // namespace everstep

#endif  // EVERSTEP_COMMON_STRINGS_H_
