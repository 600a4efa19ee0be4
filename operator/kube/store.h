// What is known of the cluster's objects: a copy that watches keep up to date.
#ifndef EVERSTEP_OPERATOR_KUBE_STORE_H_
#define EVERSTEP_OPERATOR_KUBE_STORE_H_

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/json.h"

namespace everstep::kube {

// The part of an object that the operator looks at: thousands of pods have to fit. TrainingJobs
// stay whole, they are written back.
OrderedJson TrimObject(OrderedJson object);

// Thread-safe. A newer object is never replaced by an older one (by its resourceVersion), whatever
// the order in which a watch and the answers to writes come; the same holds after a deletion.
class Store {
 public:
  using OnChange = std::function<void(const std::string& kind, const std::string& key)>;

  // Called after each change, from the thread that made it and without a lock.
  void Subscribe(OnChange on_change);

  void Put(OrderedJson object);
  // `object` as it was at its end; also one that was not known yet.
  void Remove(const OrderedJson& object);
  // All objects of `kind` in `namespace_name` ("" = everywhere) as a list found them at
  // `resource_version`: others that were there before are gone.
  void Replace(const std::string& kind, const std::string& namespace_name,
               std::vector<OrderedJson> objects, const std::string& resource_version);

  std::optional<OrderedJson> Get(const std::string& kind, const std::string& key) const;
  std::vector<OrderedJson> List(const std::string& kind) const;
  // Those with the job's label in the job's namespace, by name.
  std::vector<OrderedJson> ListOf(const std::string& kind, const std::string& job_key) const;
  size_t size() const;

 private:
  using Key = std::pair<std::string, std::string>;  // kind, key

  bool PutLocked(const Key& key, OrderedJson object);
  void RemoveLocked(const Key& key, uint64_t version);
  void BuryLocked(const Key& key, uint64_t version);
  void Tell(const std::vector<Key>& changed);

  // The versions of that many removed objects are remembered.
  static constexpr size_t kGravesKept = 10'000;

  mutable std::mutex mutex_;
  std::map<Key, OrderedJson> objects_;
  std::map<Key, std::set<std::string>> of_job_;   // kind, job's key -> keys
  std::map<Key, uint64_t> graves_;                // version at which it went
  std::deque<std::pair<Key, uint64_t>> burials_;  // the oldest first; some have risen since
  std::vector<OnChange> subscribers_;
};

}  // namespace everstep::kube

#endif  // EVERSTEP_OPERATOR_KUBE_STORE_H_
