// Where objects live: Kubernetes' API, or a store in this process. The shell knows only this.
#ifndef EVERSTEP_OPERATOR_API_OBJECT_CLIENT_H_
#define EVERSTEP_OPERATOR_API_OBJECT_CLIENT_H_

#include <functional>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace everstep {

// Thread-safe. Objects are JSON as Kubernetes has them; `key` is that of operator/api/object_key.h.
class ObjectClient {
 public:
  virtual ~ObjectClient() = default;

  virtual Result<OrderedJson> Get(const std::string& kind, const std::string& key) = 0;
  virtual Result<std::vector<OrderedJson>> List(const std::string& kind) = 0;
  // Those that carry the job's label, in the job's namespace.
  virtual Result<std::vector<OrderedJson>> ListOf(const std::string& kind,
                                                  const std::string& job_key) = 0;
  // kAlreadyExists when there is one of this kind and name.
  virtual Result<OrderedJson> Create(OrderedJson object) = 0;
  // Everything but status. kConflict unless metadata.resourceVersion is the newest.
  virtual Result<OrderedJson> Update(OrderedJson object) = 0;
  // Only status. kConflict unless metadata.resourceVersion is the newest.
  virtual Result<OrderedJson> UpdateStatus(OrderedJson object) = 0;
  // A pod that runs is marked with a deletionTimestamp first and goes when its processes have.
  virtual Status Delete(const std::string& kind, const std::string& key) = 0;

  // `on_change(kind, key)` is called after every change of any object, from the thread that made
  // it; it must only take note. Lasts as long as the client.
  virtual void Subscribe(
      std::function<void(const std::string& kind, const std::string& key)> on_change) = 0;
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_API_OBJECT_CLIENT_H_
