// The REST client on a transport.
#ifndef EVERSTEP_OPERATOR_KUBE_API_CLIENT_H_
#define EVERSTEP_OPERATOR_KUBE_API_CLIENT_H_

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "operator/kube/rest_client.h"
#include "operator/kube/transport.h"

namespace everstep::kube {

// The Error of an answer that is not a success; its message is the server's own.
Error ErrorOf(const HttpResponse& response);

// Whether it has what all objects have: a name and a resourceVersion, of the right types. Others
// may come from what only looks like an API server.
bool IsWellFormed(const OrderedJson& object);

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
  // A server that is overloaded says when to come back. A call waits for that this often, and this
  // long in all, at most; then the answer is its error.
  static constexpr int kMaxRetries = 10;
  static constexpr std::chrono::seconds kLongestWaiting{30};

  struct Options {
    Duration longest_waiting = kLongestWaiting;
    std::function<void(Duration)> pause = {};  // tests wait in their own way
  };

  // The transport is borrowed.
  explicit ApiClient(Transport& transport) : ApiClient(transport, Options{}) {}
  ApiClient(Transport& transport, Options options);

  Result<OrderedJson> Get(const ResourceType& type, const ObjectRef& ref) override;
  Result<OrderedJson> Create(const ResourceType& type, const OrderedJson& object) override;
  Result<OrderedJson> Update(const ResourceType& type, const OrderedJson& object) override;
  Result<OrderedJson> UpdateStatus(const ResourceType& type, const OrderedJson& object) override;
  Result<OrderedJson> Patch(const ResourceType& type, const ObjectRef& ref,
                            const OrderedJson& patch) override;
  Status Delete(const ResourceType& type, const ObjectRef& ref,
                const DeleteOptions& options) override;

  // One page; its items have kind and apiVersion, which the server leaves out of lists.
  // `stop` ends the waiting for a busy server.
  Result<ListPage> List(const ResourceType& type, const ListRequest& request,
                        const std::stop_token& stop = {});
  // `stop` ends the waiting for the stream, see Transport.
  Result<OpenedStream> Watch(const ResourceType& type, const WatchRequest& request,
                             const std::stop_token& stop = {});

 private:
  Result<OrderedJson> Call(const HttpRequest& request, const std::stop_token& stop = {});
  void Pause(Duration time, const std::stop_token& stop);

  Transport& transport_;
  const Options options_;
};

}  // namespace everstep::kube

#endif  // EVERSTEP_OPERATOR_KUBE_API_CLIENT_H_
