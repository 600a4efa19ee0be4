#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>

#include "common/clock.h"

namespace everstep {
namespace {

LogOptions& Options() {
  static LogOptions options;
  return options;
}

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("everstep",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

// A value stays on its line: text with a line break (or another control character) is quoted.
std::string FieldText(const Json& value) {
  if (!value.is_string()) return DumpJson(value);
  const auto& text = value.get_ref<const std::string&>();
  const bool plain = std::ranges::none_of(
      text, [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; });
  return plain ? text : DumpJson(value);
}

std::string FormatText(LogLevel level, std::string_view message, LogFields fields) {
  std::string line = FormatTime(std::chrono::system_clock::now());
  if (level != LogLevel::kInfo) line.append(" ").append(LevelName(level));
  if (!Options().component.empty()) line.append(" [").append(Options().component).append("]");
  line.append(" ").append(message);
  for (const auto& [key, value] : fields) {
    line.append(" ").append(key).append("=").append(FieldText(value));
  }
  return line;
}

std::string FormatJson(LogLevel level, std::string_view message, LogFields fields) {
  OrderedJson line;
  line["time"] = FormatTime(std::chrono::system_clock::now());
  line["level"] = LevelName(level);
  if (!Options().component.empty()) line["component"] = Options().component;
  line["message"] = message;
  for (const auto& [key, value] : fields) line[std::string(key)] = value;
  return DumpJson(line);
}

}  // namespace

void ConfigureLog(const LogOptions& options) { Options() = options; }

LogOptions LogOptionsFromEnvironment(std::string component) {
  LogOptions options;
  options.component = std::move(component);
  const char* format = std::getenv("EVERSTEP_LOG_FORMAT");
  if (format != nullptr && std::string_view(format) == "json") options.format = LogFormat::kJson;
  const char* level = std::getenv("EVERSTEP_LOG_LEVEL");
  for (LogLevel candidate :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (level != nullptr && LevelName(candidate) == level) options.level = candidate;
  }
  return options;
}

void Log(LogLevel level, std::string_view message, LogFields fields) {
  if (level < Options().level) return;
  Logger().info("{}", Options().format == LogFormat::kJson ? FormatJson(level, message, fields)
                                                           : FormatText(level, message, fields));
}

}  // namespace everstep
