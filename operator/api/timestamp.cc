#include "operator/api/timestamp.h"

#include <ctime>

namespace everstep {

std::optional<int64_t> ParseTimestamp(const std::string& text) {
  std::tm utc{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &utc);
  if (rest == nullptr) return std::nullopt;
  if (*rest == '.') {
    do {
      ++rest;
    } while (*rest >= '0' && *rest <= '9');
  }
  if (std::string(rest) != "Z") return std::nullopt;
  return timegm(&utc);
}

int64_t UnixSeconds(WallTime time) { return std::chrono::system_clock::to_time_t(time); }

}  // namespace everstep
