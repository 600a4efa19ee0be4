// The REST client on a transport.
#ifndef EVERSTEP_OPERATOR_KUBE_API_CLIENT_H_
#define EVERSTEP_OPERATOR_KUBE_API_CLIENT_H_

#include <functional>
#include <string>
#include <vector>

#include "operator/kube/rest_client.h"
#include "operator/kube/transport.h"

namespace everstep::kube {

// The Error of an answer that is not a success; its message is the server's own.
Error ErrorOf(const HttpResponse& response);

struct ListPage {
  std::vector<OrderedJson> items;
  std::string resource_version;
  std::string more;  // asks for the next page; "" after the last one
};

struct ListRequest {
  std::string namespace_name = {};  // "" = all
  std::string label_selector = {};
  std::string more = {};
};

struct WatchRequest {
  std::string namespace_name = {};
  std::string label_selector = {};
  std::string resource_version = {};
  int timeout_seconds = 290;
};

class ApiClient final : public RestClient {
 public:
  static constexpr int kPageSize = 500;
  // A server that is overloaded says when to come back; this often at most.
  static constexpr int kMaxRetries = 10;
  static constexpr std::chrono::seconds kLongestRetryAfter{30};

  // `pause` waits between retries; tests give their own. The transport is borrowed.
  explicit ApiClient(Transport& transport, std::function<void(Duration)> pause = nullptr);

  Result<OrderedJson> Get(const ResourceType& type, const ObjectRef& ref) override;
  Result<OrderedJson> Create(const ResourceType& type, const OrderedJson& object) override;
  Result<OrderedJson> Update(const ResourceType& type, const OrderedJson& object) override;
  Result<OrderedJson> UpdateStatus(const ResourceType& type, const OrderedJson& object) override;
  Result<OrderedJson> Patch(const ResourceType& type, const ObjectRef& ref,
                            const OrderedJson& patch) override;
  Status Delete(const ResourceType& type, const ObjectRef& ref,
                const DeleteOptions& options) override;

  // One page; its items have kind and apiVersion, which the server leaves out of lists.
  Result<ListPage> List(const ResourceType& type, const ListRequest& request);
  Result<OpenedStream> Watch(const ResourceType& type, const WatchRequest& request);

 private:
  Result<OrderedJson> Call(const HttpRequest& request);

  Transport& transport_;
  const std::function<void(Duration)> pause_;
};

}  // namespace everstep::kube

#endif  // EVERSTEP_OPERATOR_KUBE_API_CLIENT_H_
