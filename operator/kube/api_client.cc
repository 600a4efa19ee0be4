#include "operator/kube/api_client.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace everstep::kube {
namespace {

constexpr char kJson[] = "application/json";

std::string Encode(const std::string& text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '.' || c == '_' || c == '~') {
      encoded += c;
    } else {
      encoded += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return encoded;
}

class Query {
 public:
  Query& Add(const std::string& name, const std::string& value) {
    if (value.empty()) return *this;
    text_ += (text_.empty() ? "?" : "&") + name + "=" + Encode(value);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

ObjectRef RefOf(const OrderedJson& object) {
  const OrderedJson& metadata = object["metadata"];
  return {metadata.value("namespace", ""), metadata.value("name", "")};
}

ErrorCode CodeOf(int status, const std::string& reason, const std::string& message) {
  switch (status) {
    case 400:
    case 405:
    case 415:
    case 422:
      return ErrorCode::kInvalidArgument;
    case 401:
      return ErrorCode::kFailedPrecondition;
    case 403:
      return message.find("exceeded quota") == std::string::npos ? ErrorCode::kFailedPrecondition
                                                                 : ErrorCode::kResourceExhausted;
    case 404:
      return ErrorCode::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? ErrorCode::kAlreadyExists : ErrorCode::kConflict;
    case 410:
      return ErrorCode::kAborted;
    case 504:
      return reason == "Timeout" && message.find("Too large resource version") != std::string::npos
                 ? ErrorCode::kAborted
                 : ErrorCode::kUnavailable;
    default:
      return status == 429 || status >= 500 ? ErrorCode::kUnavailable : ErrorCode::kInternal;
  }
}

}  // namespace

Error ErrorOf(const HttpResponse& response) {
  std::string reason, message;
  if (const auto status = ParseJson(response.body, "answer")) {
    reason = JsonValue<std::string>(*status, "reason", "");
    message = JsonValue<std::string>(*status, "message", "");
  }
  if (message.empty()) message = "the API server answers " + std::to_string(response.status);
  return {CodeOf(response.status, reason, message), message};
}

bool IsWellFormed(const OrderedJson& object) {
  if (!object.is_object() || !object.contains("metadata")) return false;
  const OrderedJson& metadata = object["metadata"];
  if (!metadata.is_object()) return false;
  const auto text = [&](const char* key) {
    return metadata.contains(key) && metadata[key].is_string() && metadata[key] != "";
  };
  const auto text_if_any = [&](const char* key) {
    return !metadata.contains(key) || metadata[key].is_string();
  };
  if (metadata.contains("labels")) {
    const OrderedJson& labels = metadata["labels"];
    if (!labels.is_object() && !labels.is_null()) return false;
    if (!std::ranges::all_of(labels, [](const auto& label) { return label.is_string(); })) {
      return false;
    }
  }
  return text("name") && text("resourceVersion") && text_if_any("namespace") && text_if_any("uid");
}

ApiClient::ApiClient(Transport& transport, Options options)
    : transport_(transport), options_(std::move(options)) {}

void ApiClient::Pause(Duration time, const std::stop_token& stop) {
  if (options_.pause) return options_.pause(time);
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait_for(lock, stop, time, [] { return false; });
}

Result<OrderedJson> ApiClient::Call(const HttpRequest& request, const std::stop_token& stop) {
  Duration waited{};
  for (int attempt = 0;; ++attempt) {
    ASSIGN_OR_RETURN(const HttpResponse response, transport_.Send(request));
    if (response.status >= 200 && response.status < 300) {
      ASSIGN_OR_RETURN(OrderedJson answer, ParseOrderedJson(response.body, request.path));
      if (answer.is_object()) return answer;
      return Unavailable(request.path + ": the answer is no object: is this an API server?");
    }
    const bool busy = response.status == 429 || response.status == 503;
    if (!busy || !response.retry_after || attempt == kMaxRetries || stop.stop_requested() ||
        waited + *response.retry_after > options_.longest_waiting) {
      return tl::unexpected(ErrorOf(response));
    }
    waited += *response.retry_after;
    Pause(*response.retry_after, stop);
  }
}

Result<OrderedJson> ApiClient::Get(const ResourceType& type, const ObjectRef& ref) {
  return Call({.path = ResourcePath(type, ref.namespace_name, ref.name)});
}

Result<OrderedJson> ApiClient::Create(const ResourceType& type, const OrderedJson& object) {
  return Call({.method = "POST",
               .path = ResourcePath(type, RefOf(object).namespace_name),
               .content_type = kJson,
               .body = DumpJson(object)});
}

Result<OrderedJson> ApiClient::Update(const ResourceType& type, const OrderedJson& object) {
  const ObjectRef ref = RefOf(object);
  return Call({.method = "PUT",
               .path = ResourcePath(type, ref.namespace_name, ref.name),
               .content_type = kJson,
               .body = DumpJson(object)});
}

Result<OrderedJson> ApiClient::UpdateStatus(const ResourceType& type, const OrderedJson& object) {
  const ObjectRef ref = RefOf(object);
  return Call({.method = "PUT",
               .path = ResourcePath(type, ref.namespace_name, ref.name, "status"),
               .content_type = kJson,
               .body = DumpJson(object)});
}

Result<OrderedJson> ApiClient::Patch(const ResourceType& type, const ObjectRef& ref,
                                     const OrderedJson& patch) {
  return Call({.method = "PATCH",
               .path = ResourcePath(type, ref.namespace_name, ref.name),
               .content_type = "application/merge-patch+json",
               .body = DumpJson(patch)});
}

Status ApiClient::Delete(const ResourceType& type, const ObjectRef& ref,
                         const DeleteOptions& options) {
  OrderedJson body = {
      {"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", "Background"}};
  if (!options.uid.empty()) body["preconditions"] = {{"uid", options.uid}};
  if (options.grace_period_seconds) body["gracePeriodSeconds"] = *options.grace_period_seconds;
  const auto answer = Call({.method = "DELETE",
                            .path = ResourcePath(type, ref.namespace_name, ref.name),
                            .content_type = kJson,
                            .body = DumpJson(body)});
  if (!answer) return tl::unexpected(answer.error());
  return {};
}

Result<ListPage> ApiClient::List(const ResourceType& type, const ListRequest& request,
                                 const std::stop_token& stop) {
  const Query query = Query()
                          .Add("labelSelector", request.label_selector)
                          .Add("limit", std::to_string(kPageSize))
                          .Add("continue", request.more);
  ASSIGN_OR_RETURN(OrderedJson list,
                   Call({.path = ResourcePath(type, request.namespace_name) + query.text()}, stop));
  const auto malformed = [&] {
    return Unavailable("the answer is no list of " + std::string(type.plural) +
                       ": is this an API server?");
  };
  const OrderedJson metadata = list.value("metadata", OrderedJson::object());
  const auto text = [&](const char* key) {
    return metadata.contains(key) && metadata[key].is_string() ? metadata[key].get<std::string>()
                                                               : std::string();
  };
  if (!metadata.is_object() || text("resourceVersion").empty()) return malformed();
  ListPage page{.items = {}, .resource_version = text("resourceVersion"), .more = text("continue")};
  for (OrderedJson& item : list["items"]) {
    if (!IsWellFormed(item)) return malformed();
    item["apiVersion"] = type.api_version;
    item["kind"] = type.kind;
    page.items.push_back(std::move(item));
  }
  return page;
}

Result<OpenedStream> ApiClient::Watch(const ResourceType& type, const WatchRequest& request,
                                      const std::stop_token& stop) {
  const Query query = Query()
                          .Add("watch", "true")
                          .Add("allowWatchBookmarks", "true")
                          .Add("labelSelector", request.label_selector)
                          .Add("resourceVersion", request.resource_version)
                          .Add("timeoutSeconds", std::to_string(request.timeout_seconds));
  return transport_.Open(ResourcePath(type, request.namespace_name) + query.text(), stop);
}

}  // namespace everstep::kube
