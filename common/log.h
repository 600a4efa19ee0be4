// Logging to stderr: plain lines for people, or one JSON object a line (--log-format=json).
//
//   LogInfo("regrouped", {{"generation", 4}, {"members", 3}});
//
// The first argument says what happened; the fields carry the values. Safe from any thread.
#ifndef EVERSTEP_COMMON_LOG_H_
#define EVERSTEP_COMMON_LOG_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "common/json.h"

namespace everstep {

enum class LogFormat { kText, kJson };
enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogOptions {
  LogFormat format = LogFormat::kText;
  LogLevel level = LogLevel::kInfo;
  std::string component;  // "everstep", "supervisor", "worker"; printed with every line
};

// Call once, before the first thread starts.
void ConfigureLog(const LogOptions& options);
// Options from EVERSTEP_LOG_FORMAT (text|json) and EVERSTEP_LOG_LEVEL (debug|info|warning|error).
LogOptions LogOptionsFromEnvironment(std::string component);

using LogFields = std::initializer_list<std::pair<std::string_view, Json>>;

void Log(LogLevel level, std::string_view message, LogFields fields = {});
inline void LogDebug(std::string_view m, LogFields f = {}) { Log(LogLevel::kDebug, m, f); }
inline void LogInfo(std::string_view m, LogFields f = {}) { Log(LogLevel::kInfo, m, f); }
inline void LogWarning(std::string_view m, LogFields f = {}) { Log(LogLevel::kWarning, m, f); }
inline void LogError(std::string_view m, LogFields f = {}) { Log(LogLevel::kError, m, f); }

}  // namespace everstep

#endif  // EVERSTEP_COMMON_LOG_H_
