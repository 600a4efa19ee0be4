#include "operator/kube/api_client.h"

#include <algorithm>
#include <thread>
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

ApiClient::ApiClient(Transport& transport, std::function<void(Duration)> pause)
    : transport_(transport),
      pause_(pause ? std::move(pause) : [](Duration time) { std::this_thread::sleep_for(time); }) {}

Result<OrderedJson> ApiClient::Call(const HttpRequest& request) {
  for (int attempt = 0;; ++attempt) {
    ASSIGN_OR_RETURN(const HttpResponse response, transport_.Send(request));
    if (response.status >= 200 && response.status < 300) {
      return ParseOrderedJson(response.body, request.path);
    }
    const bool busy = response.status == 429 || response.status == 503;
    if (!busy || !response.retry_after || attempt == kMaxRetries) {
      return tl::unexpected(ErrorOf(response));
    }
    pause_(std::min<Duration>(*response.retry_after, kLongestRetryAfter));
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

Result<ListPage> ApiClient::List(const ResourceType& type, const ListRequest& request) {
  const Query query = Query()
                          .Add("labelSelector", request.label_selector)
                          .Add("limit", std::to_string(kPageSize))
                          .Add("continue", request.more);
  ASSIGN_OR_RETURN(OrderedJson list,
                   Call({.path = ResourcePath(type, request.namespace_name) + query.text()}));
  ListPage page;
  const OrderedJson metadata = list.value("metadata", OrderedJson::object());
  page.resource_version = metadata.value("resourceVersion", "");
  page.more = metadata.value("continue", "");
  for (OrderedJson& item : list["items"]) {
    item["apiVersion"] = type.api_version;
    item["kind"] = type.kind;
    page.items.push_back(std::move(item));
  }
  return page;
}

Result<OpenedStream> ApiClient::Watch(const ResourceType& type, const WatchRequest& request) {
  const Query query = Query()
                          .Add("watch", "true")
                          .Add("allowWatchBookmarks", "true")
                          .Add("labelSelector", request.label_selector)
                          .Add("resourceVersion", request.resource_version)
                          .Add("timeoutSeconds", std::to_string(request.timeout_seconds));
  return transport_.Open(ResourcePath(type, request.namespace_name) + query.text());
}

}  // namespace everstep::kube
