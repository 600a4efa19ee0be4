// The cluster as the shell sees it: reads come from the store, writes go to the API server.
#ifndef EVERSTEP_OPERATOR_KUBE_KUBE_OBJECT_CLIENT_H_
#define EVERSTEP_OPERATOR_KUBE_KUBE_OBJECT_CLIENT_H_

#include <memory>
#include <string>
#include <vector>

#include "operator/api/object_client.h"
#include "operator/kube/api_client.h"
#include "operator/kube/store.h"
#include "operator/kube/watcher.h"

namespace everstep::kube {

// TrainingJobs and pods are watched: Get and List of them ask nobody, and know one's own writes at
// once. Other kinds are read from the server. After a conflict the newest object is in the store.
class KubeObjectClient final : public ObjectClient {
 public:
  // Everything is borrowed and outlives it. `namespaces`: the watched ones; none = all.
  KubeObjectClient(ApiClient& client, const std::vector<std::string>& namespaces,
                   const Clock& clock);

  // Everything was listed once.
  bool synced() const;

  Result<OrderedJson> Get(const std::string& kind, const std::string& key) override;
  Result<std::vector<OrderedJson>> List(const std::string& kind) override;
  Result<std::vector<OrderedJson>> ListOf(const std::string& kind,
                                          const std::string& job_key) override;
  Result<OrderedJson> Create(OrderedJson object) override;
  Result<OrderedJson> Update(OrderedJson object) override;
  Result<OrderedJson> UpdateStatus(OrderedJson object) override;
  Status Delete(const std::string& kind, const std::string& key) override;
  void Subscribe(
      std::function<void(const std::string& kind, const std::string& key)> on_change) override;

 private:
  using Write = Result<OrderedJson> (ApiClient::*)(const ResourceType&, const OrderedJson&);
  Result<OrderedJson> Change(Write write, const OrderedJson& object);

  ApiClient& client_;
  Store store_;
  std::vector<std::unique_ptr<Watcher>> watchers_;
};

}  // namespace everstep::kube

#endif  // EVERSTEP_OPERATOR_KUBE_KUBE_OBJECT_CLIENT_H_
