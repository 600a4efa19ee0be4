#include "worker/report/log_history.h"

#include <cmath>
#include <limits>

namespace everstep {
namespace {

// What is not finite has no number in JSON.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Result<LogRecord> RecordFrom(const Json& json, size_t number) {
  const auto malformed = [&](const char* key) {
    return DataLoss("log history: record " + std::to_string(number) + ": '" + key +
                    "' is malformed");
  };
  LogRecord record;
  record.step = JsonValue<int64_t>(json, "step", -1);
  if (record.step < 0) return malformed("step");
  record.epoch = JsonValue<double>(json, "epoch", 0);
  record.elapsed_seconds = JsonValue<double>(json, "elapsed_seconds", 0);
  record.input_tokens = JsonValue<int64_t>(json, "input_tokens", 0);
  const auto values = json.find("values");
  if (values == json.end() || !values->is_object()) return malformed("values");
  for (const auto& [key, value] : values->items()) {
    if (!value.is_number() && !value.is_null()) return malformed(key.c_str());
    record.values[key] =
        value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  }
  return record;
}

}  // namespace

Json LogHistory::ToJson() const {
  Json json = Json::array();
  for (const LogRecord& record : records_) {
    Json values = Json::object();
    for (const auto& [key, value] : record.values) values[key] = Number(value);
    json.push_back(Json{{"step", record.step},
                        {"epoch", Number(record.epoch)},
                        {"values", std::move(values)},
                        {"elapsed_seconds", Number(record.elapsed_seconds)},
                        {"input_tokens", record.input_tokens}});
  }
  return json;
}

Result<LogHistory> LogHistory::FromJson(const Json& json) {
  if (!json.is_array()) return DataLoss("log history: is not an array");
  LogHistory history;
  for (size_t i = 0; i < json.size(); ++i) {
    ASSIGN_OR_RETURN(LogRecord record, RecordFrom(json[i], i));
    history.Add(std::move(record));
  }
  return history;
}

}  // namespace everstep
