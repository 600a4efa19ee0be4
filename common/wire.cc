#include "common/wire.h"

#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "common/check.h"

namespace everstep::wire {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kQuotedBytes = 80;  // how much of a wrong value an error message shows

// ---- The fields of each message, listed once for both directions ------------------------------

template <typename M, typename T>
struct Field {
  const char* name;
  T M::*member;
};

template <typename M>
constexpr auto FieldsOf() {
  if constexpr (std::is_same_v<M, Member>) {
    return std::tuple{Field{"rank", &M::rank}, Field{"endpoint", &M::endpoint},
                      Field{"logical_ranks", &M::logical_ranks}, Field{"newcomer", &M::newcomer}};
  } else if constexpr (std::is_same_v<M, Membership>) {
    return std::tuple{Field{"generation", &M::generation}, Field{"planned", &M::planned},
                      Field{"durable_step", &M::durable_step}, Field{"members", &M::members}};
  } else if constexpr (std::is_same_v<M, Ready>) {
    return std::tuple{Field{"rank", &M::rank}, Field{"endpoint", &M::endpoint},
                      Field{"generation", &M::generation}};
  } else if constexpr (std::is_same_v<M, Regrouped>) {
    return std::tuple{Field{"rank", &M::rank}, Field{"generation", &M::generation},
                      Field{"step", &M::step}};
  } else if constexpr (std::is_same_v<M, PeerLost>) {
    return std::tuple{Field{"rank", &M::rank}, Field{"generation", &M::generation},
                      Field{"lost_rank", &M::lost_rank}};
  } else if constexpr (std::is_same_v<M, Progress>) {
    return std::tuple{Field{"rank", &M::rank},
                      Field{"generation", &M::generation},
                      Field{"step", &M::step},
                      Field{"total_steps", &M::total_steps},
                      Field{"loss", &M::loss},
                      Field{"grad_norm", &M::grad_norm},
                      Field{"learning_rate", &M::learning_rate},
                      Field{"epoch", &M::epoch},
                      Field{"tokens_per_second", &M::tokens_per_second},
                      Field{"step_seconds", &M::step_seconds}};
  } else if constexpr (std::is_same_v<M, CheckpointSaved>) {
    return std::tuple{Field{"rank", &M::rank},       Field{"generation", &M::generation},
                      Field{"step", &M::step},       Field{"path", &M::path},
                      Field{"seconds", &M::seconds}, Field{"warning", &M::warning}};
  } else if constexpr (std::is_same_v<M, Finished>) {
    return std::tuple{Field{"rank", &M::rank}, Field{"step", &M::step},
                      Field{"output_dir", &M::output_dir}};
  } else if constexpr (std::is_same_v<M, Fatal>) {
    return std::tuple{Field{"rank", &M::rank}, Field{"reason", &M::reason}};
  } else if constexpr (std::is_same_v<M, Hello>) {
    return std::tuple{Field{"job", &M::job},
                      Field{"token", &M::token},
                      Field{"replica", &M::replica},
                      Field{"incarnation", &M::incarnation},
                      Field{"processes", &M::processes},
                      Field{"pod", &M::pod},
                      Field{"node", &M::node}};
  } else if constexpr (std::is_same_v<M, ProcessStarted>) {
    return std::tuple{Field{"rank", &M::rank}, Field{"pid", &M::pid}};
  } else if constexpr (std::is_same_v<M, ProcessDied>) {
    return std::tuple{Field{"rank", &M::rank},     Field{"generation", &M::generation},
                      Field{"cause", &M::cause},   Field{"exit_code", &M::exit_code},
                      Field{"signal", &M::signal}, Field{"detect_seconds", &M::detect_seconds}};
  } else if constexpr (std::is_same_v<M, LastWords>) {
    return std::tuple{Field{"rank", &M::rank}, Field{"text", &M::text},
                      Field{"exit_code", &M::exit_code}, Field{"signal", &M::signal}};
  } else if constexpr (std::is_same_v<M, RankBeat>) {
    return std::tuple{Field{"rank", &M::rank}, Field{"generation", &M::generation},
                      Field{"step", &M::step}, Field{"phase", &M::phase}};
  } else if constexpr (std::is_same_v<M, Heartbeat>) {
    return std::tuple{Field{"ranks", &M::ranks}};
  } else if constexpr (std::is_same_v<M, Welcome>) {
    return std::tuple{Field{"heartbeat_timeout_seconds", &M::heartbeat_timeout_seconds}};
  } else if constexpr (std::is_same_v<M, StartProcess>) {
    return std::tuple{Field{"rank", &M::rank}};
  } else if constexpr (std::is_same_v<M, Stop>) {
    return std::tuple{Field{"grace_seconds", &M::grace_seconds}, Field{"reason", &M::reason}};
  } else {
    static_assert(std::is_same_v<M, Fenced>);
    return std::tuple{Field{"reason", &M::reason}};
  }
}

constexpr std::array<std::string_view, std::variant_size_v<Message>> kTypeNames = {
    "Membership", "Ready",   "Regrouped",    "PeerLost",       "Progress",    "CheckpointSaved",
    "Finished",   "Fatal",   "Hello",        "ProcessStarted", "ProcessDied", "LastWords",
    "Heartbeat",  "Welcome", "StartProcess", "Stop",           "Fenced"};

constexpr std::array<std::string_view, 4> kDeathCauses = {"exited", "signaled", "hung",
                                                          "start-failed"};

// ---- To JSON ----------------------------------------------------------------------------------

template <typename T>
Json ValueToJson(const T& value) {
  if constexpr (std::is_same_v<T, DeathCause>) {
    return std::string(DeathCauseName(value));
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string> ||
                       std::is_same_v<T, std::vector<int>>) {
    return value;
  } else if constexpr (std::is_same_v<T, std::vector<Member>> ||
                       std::is_same_v<T, std::vector<RankBeat>>) {
    Json array = Json::array();
    for (const auto& element : value) array.push_back(ValueToJson(element));
    return array;
  } else {
    Json object = Json::object();
    std::apply(
        [&](auto... field) { ((object[field.name] = ValueToJson(value.*field.member)), ...); },
        FieldsOf<T>());
    return object;
  }
}

// ---- From JSON --------------------------------------------------------------------------------

tl::unexpected<Error> Wrong(const std::string& where, const std::string& must, const Json& is) {
  return InvalidArgument(where + ": must be " + must + ", is " +
                         DumpJson(is).substr(0, kQuotedBytes));
}

template <typename T>
Status ReadInteger(const Json& json, const std::string& where, T& out) {
  const auto wrong = [&] {
    return Wrong(where,
                 "a whole number from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
                     std::to_string(std::numeric_limits<T>::max()),
                 json);
  };
  if (json.is_number_unsigned()) {
    const auto value = json.get<uint64_t>();
    if (!std::in_range<T>(value)) return wrong();
    out = static_cast<T>(value);
    return {};
  }
  if (!json.is_number_integer()) return wrong();
  const auto value = json.get<int64_t>();
  if (!std::in_range<T>(value)) return wrong();
  out = static_cast<T>(value);
  return {};
}

template <typename T>
Status ReadValue(const Json& json, const std::string& where, T& out);

template <typename T>
Status ReadArray(const Json& json, const std::string& where, std::vector<T>& out) {
  if (!json.is_array()) return Wrong(where, "a list", json);
  out.clear();
  out.reserve(json.size());
  for (const Json& element : json) {
    const std::string place = where + "[" + std::to_string(out.size()) + "]";
    RETURN_IF_ERROR(ReadValue(element, place, out.emplace_back()));
  }
  return {};
}

template <typename T>
Status ReadObject(const Json& json, const std::string& where, T& out) {
  if (!json.is_object()) return Wrong(where, "an object", json);
  Status status;
  const auto read = [&](const auto& field) {
    const auto it = json.find(field.name);
    if (!status || it == json.end()) return;
    status = ReadValue(*it, where + "." + field.name, out.*field.member);
  };
  std::apply([&](auto... field) { (read(field), ...); }, FieldsOf<T>());
  return status;
}

Status ReadDeathCause(const Json& json, const std::string& where, DeathCause& out) {
  for (size_t i = 0; i < kDeathCauses.size(); ++i) {
    if (json == kDeathCauses[i]) {
      out = static_cast<DeathCause>(i);
      return {};
    }
  }
  return Wrong(where, "exited, signaled, hung or start-failed", json);
}

template <typename T>
Status ReadValue(const Json& json, const std::string& where, T& out) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) return Wrong(where, "true or false", json);
    out = json.get<bool>();
    return {};
  } else if constexpr (std::is_integral_v<T>) {
    return ReadInteger(json, where, out);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!json.is_number() && !json.is_null()) return Wrong(where, "a number", json);
    out = json.is_null() ? std::numeric_limits<T>::quiet_NaN() : json.get<T>();
    return {};
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!json.is_string()) return Wrong(where, "a text", json);
    out = json.get<std::string>();
    return {};
  } else if constexpr (std::is_same_v<T, DeathCause>) {
    return ReadDeathCause(json, where, out);
  } else if constexpr (std::is_same_v<T, std::vector<int>> ||
                       std::is_same_v<T, std::vector<Member>> ||
                       std::is_same_v<T, std::vector<RankBeat>>) {
    return ReadArray(json, where, out);
  } else {
    return ReadObject(json, where, out);
  }
}

// The message of type number `Index` or a later one, whichever has the name `type`.
template <size_t Index = 0>
Result<Message> ReadMessage(const std::string& type, const Json& json) {
  if constexpr (Index == std::variant_size_v<Message>) {
    return InvalidArgument("message of unknown type '" + type.substr(0, kQuotedBytes) +
                           "': the sender is of another release");
  } else {
    if (type != kTypeNames[Index]) return ReadMessage<Index + 1>(type, json);
    std::variant_alternative_t<Index, Message> message;
    RETURN_IF_ERROR(ReadObject(json, type, message));
    return Message(std::move(message));
  }
}

}  // namespace

std::string_view DeathCauseName(DeathCause cause) {
  const auto index = static_cast<size_t>(cause);
  EVERSTEP_CHECK(index < kDeathCauses.size());
  return kDeathCauses[index];
}

std::string_view TypeName(const Message& message) { return kTypeNames[message.index()]; }

Json ToJson(const Message& message) {
  Json json = std::visit([](const auto& typed) { return ValueToJson(typed); }, message);
  json["v"] = kVersion;
  json["type"] = std::string(TypeName(message));
  return json;
}

Result<Message> FromJson(const Json& json) {
  if (!json.is_object()) return Wrong("message", "an object", json);
  if (const int version = JsonValue(json, "v", 0); version != kVersion) {
    return InvalidArgument("message of version " + std::to_string(version) +
                           ": this program speaks version " + std::to_string(kVersion) +
                           "; use one release for operator and images");
  }
  return ReadMessage(JsonValue(json, "type", std::string()), json);
}

std::string EncodeFrame(const Message& message) {
  const std::string body = DumpJson(ToJson(message));
  EVERSTEP_CHECK(body.size() <= kMaxFrameBytes);
  const auto size = static_cast<uint32_t>(body.size());
  std::string frame;
  frame.reserve(kLengthBytes + body.size());
  for (int shift = 24; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(size >> shift));
  return frame + body;
}

void FrameDecoder::Append(std::string_view bytes) {
  if (broken_) return;
  buffer_.erase(0, consumed_);
  consumed_ = 0;
  buffer_.append(bytes);
}

Result<Message> FrameDecoder::Next() {
  if (broken_) return DataLoss("the stream broke at an earlier frame");
  const std::string_view rest = std::string_view(buffer_).substr(consumed_);
  if (rest.size() < kLengthBytes) return NotFound("incomplete frame");
  uint32_t size = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) size = size << 8 | static_cast<uint8_t>(rest[i]);
  if (size > kMaxFrameBytes) {
    broken_ = true;
    return DataLoss("frame of " + std::to_string(size) + " bytes, at most " +
                    std::to_string(kMaxFrameBytes) + " are allowed");
  }
  if (rest.size() - kLengthBytes < size) return NotFound("incomplete frame");
  auto message = ParseJson(rest.substr(kLengthBytes, size), "frame").and_then(FromJson);
  consumed_ += kLengthBytes + size;
  if (message) return message;
  broken_ = true;
  return DataLoss(message.error().message);
}

}  // namespace everstep::wire
