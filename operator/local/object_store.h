// The embedded default's objects: in memory, on disk, with the API server's rules.
#ifndef EVERSTEP_OPERATOR_LOCAL_OBJECT_STORE_H_
#define EVERSTEP_OPERATOR_LOCAL_OBJECT_STORE_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "operator/api/object_client.h"

namespace everstep {

// resourceVersion grows with every write; metadata.generation with every change of the spec; a uid
// lasts as long as the object; what an object owns goes with it (pods that run, when their
// processes have ended). There are no namespaces: an object's key is its name. Every write is on
// disk when it returns (`directory`/<Kind>/<name>.json).
class ObjectStore final : public ObjectClient {
 public:
  // Loads what an earlier run left. `clock` is borrowed.
  static Result<std::unique_ptr<ObjectStore>> Open(const std::string& directory,
                                                   const Clock& clock);

  Result<OrderedJson> Get(const std::string& kind, const std::string& name) override;
  Result<std::vector<OrderedJson>> List(const std::string& kind) override;
  Result<std::vector<OrderedJson>> ListOf(const std::string& kind,
                                          const std::string& job_key) override;
  Result<OrderedJson> Create(OrderedJson object) override;
  Result<OrderedJson> Update(OrderedJson object) override;
  Result<OrderedJson> UpdateStatus(OrderedJson object) override;
  Status Delete(const std::string& kind, const std::string& name) override;
  void Subscribe(
      std::function<void(const std::string& kind, const std::string& name)> on_change) override;

  // For the runtime: the pod's processes are gone, the object goes too.
  Status Remove(const std::string& kind, const std::string& name);

 private:
  using Key = std::pair<std::string, std::string>;

  ObjectStore(std::string directory, const Clock& clock);
  Status LoadAll();
  Result<OrderedJson> Replace(OrderedJson object, bool status_only);
  // Both with the lock held.
  Status Write(const Key& key, OrderedJson object);
  Status MarkDeleted(const Key& key, std::vector<Key>& changed);
  void Erase(const Key& key, std::vector<Key>& changed);
  std::string PathOf(const Key& key) const;
  void Notify(const std::vector<Key>& changed);

  const std::string directory_;
  const Clock& clock_;
  std::mutex mutex_;
  std::map<Key, OrderedJson> objects_;
  int64_t newest_version_ = 0;
  std::vector<std::function<void(const std::string&, const std::string&)>> subscribers_;
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_LOCAL_OBJECT_STORE_H_
