#include "operator/kube/store.h"

#include <charconv>

#include "operator/api/names.h"
#include "operator/api/object_key.h"

namespace everstep::kube {
namespace {

// Resource versions of one kind of object are decimals that grow.
uint64_t VersionOf(const std::string& text) {
  uint64_t version = 0;
  std::from_chars(text.data(), text.data() + text.size(), version);
  return version;
}
uint64_t VersionOf(const OrderedJson& object) {
  return VersionOf(object["metadata"].value("resourceVersion", ""));
}

// Only these keys of `object`, if they are there.
OrderedJson Only(const OrderedJson& object, std::initializer_list<const char*> keys) {
  OrderedJson part = OrderedJson::object();
  if (!object.is_object()) return part;
  for (const char* key : keys) {
    if (object.contains(key)) part[key] = object[key];
  }
  return part;
}

OrderedJson TrimPod(const OrderedJson& pod) {
  OrderedJson part = Only(pod, {"apiVersion", "kind"});
  part["metadata"] =
      Only(pod["metadata"], {"name", "namespace", "uid", "resourceVersion", "labels",
                             "ownerReferences", "creationTimestamp", "deletionTimestamp"});
  if (pod.contains("spec")) part["spec"] = Only(pod["spec"], {"nodeName", "serviceAccountName"});
  if (pod.contains("status")) {
    part["status"] = Only(pod["status"], {"phase", "reason", "message", "podIP", "conditions",
                                          "containerStatuses", "initContainerStatuses"});
  }
  return part;
}

std::string JobKeyOf(const OrderedJson& object) {
  const OrderedJson& metadata = object["metadata"];
  if (!metadata.contains("labels") || !metadata["labels"].is_object()) return "";
  const std::string job = metadata["labels"].value(names::kJobLabel, "");
  return job.empty() ? "" : MakeKey(metadata.value("namespace", ""), job);
}

}  // namespace

OrderedJson TrimObject(OrderedJson object) {
  if (object.value("kind", "") == "Pod") return TrimPod(object);
  object["metadata"].erase("managedFields");
  return object;
}

void Store::Subscribe(OnChange on_change) {
  const std::lock_guard lock(mutex_);
  subscribers_.push_back(std::move(on_change));
}

void Store::Tell(const std::vector<Key>& changed) {
  if (changed.empty()) return;
  std::unique_lock lock(mutex_);
  const auto subscribers = subscribers_;
  lock.unlock();
  for (const auto& [kind, key] : changed) {
    for (const OnChange& subscriber : subscribers) subscriber(kind, key);
  }
}

bool Store::PutLocked(const Key& key, OrderedJson object) {
  const uint64_t version = VersionOf(object);
  if (const auto grave = graves_.find(key); grave != graves_.end()) {
    if (version <= grave->second) return false;
    graves_.erase(grave);
  }
  const std::string job = JobKeyOf(object);
  const auto known = objects_.find(key);
  if (known == objects_.end()) {
    objects_.emplace(key, std::move(object));
  } else {
    if (version <= VersionOf(known->second)) return false;
    const std::string before = JobKeyOf(known->second);
    if (before != job) of_job_[{key.first, before}].erase(key.second);
    known->second = std::move(object);
  }
  if (!job.empty()) of_job_[{key.first, job}].insert(key.second);
  return true;
}

void Store::RemoveLocked(const Key& key, uint64_t version) {
  const auto known = objects_.find(key);
  const auto index = of_job_.find({key.first, JobKeyOf(known->second)});
  if (index != of_job_.end()) {
    index->second.erase(key.second);
    if (index->second.empty()) of_job_.erase(index);
  }
  objects_.erase(known);
  BuryLocked(key, version);
}

void Store::BuryLocked(const Key& key, uint64_t version) {
  const auto known = graves_.find(key);
  if (version <= (known == graves_.end() ? 0 : known->second)) return;
  graves_[key] = version;
  burials_.emplace_back(key, version);
  if (burials_.size() <= kGravesKept) return;
  const auto& [oldest, at] = burials_.front();
  if (const auto found = graves_.find(oldest); found != graves_.end() && found->second == at) {
    graves_.erase(found);
  }
  burials_.pop_front();
}

void Store::Put(OrderedJson object) {
  object = TrimObject(std::move(object));
  const Key key{object.value("kind", ""), KeyOf(object)};
  bool changed = false;
  {
    const std::lock_guard lock(mutex_);
    changed = PutLocked(key, std::move(object));
  }
  if (changed) Tell({key});
}

void Store::Remove(const OrderedJson& object) {
  const Key key{object.value("kind", ""), KeyOf(object)};
  const uint64_t version = VersionOf(object);
  {
    const std::lock_guard lock(mutex_);
    const auto known = objects_.find(key);
    if (known == objects_.end()) return BuryLocked(key, version);
    if (VersionOf(known->second) > version) return;
    RemoveLocked(key, version);
  }
  Tell({key});
}

void Store::Replace(const std::string& kind, const std::string& namespace_name,
                    std::vector<OrderedJson> objects, const std::string& resource_version) {
  const uint64_t listed_at = VersionOf(resource_version);
  std::vector<Key> changed;
  {
    const std::lock_guard lock(mutex_);
    std::set<std::string> listed;
    for (OrderedJson& object : objects) {
      object = TrimObject(std::move(object));
      const Key key{kind, KeyOf(object)};
      listed.insert(key.second);
      if (PutLocked(key, std::move(object))) changed.push_back(key);
    }
    std::vector<Key> gone;
    for (auto entry = objects_.lower_bound({kind, ""});
         entry != objects_.end() && entry->first.first == kind; ++entry) {
      const bool elsewhere =
          !namespace_name.empty() && NamespaceOf(entry->first.second) != namespace_name;
      // One that was made after the list was taken is not missing from it.
      const bool newer = VersionOf(entry->second) > listed_at;
      if (!elsewhere && !newer && !listed.contains(entry->first.second)) {
        gone.push_back(entry->first);
      }
    }
    for (const Key& key : gone) {
      RemoveLocked(key, listed_at);
      changed.push_back(key);
    }
  }
  Tell(changed);
}

std::optional<OrderedJson> Store::Get(const std::string& kind, const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find({kind, key});
  if (found == objects_.end()) return std::nullopt;
  return found->second;
}

std::vector<OrderedJson> Store::List(const std::string& kind) const {
  const std::lock_guard lock(mutex_);
  std::vector<OrderedJson> list;
  for (auto entry = objects_.lower_bound({kind, ""});
       entry != objects_.end() && entry->first.first == kind; ++entry) {
    list.push_back(entry->second);
  }
  return list;
}

std::vector<OrderedJson> Store::ListOf(const std::string& kind, const std::string& job_key) const {
  const std::lock_guard lock(mutex_);
  std::vector<OrderedJson> list;
  const auto keys = of_job_.find({kind, job_key});
  if (keys == of_job_.end()) return list;
  for (const std::string& key : keys->second) list.push_back(objects_.at({kind, key}));
  return list;
}

size_t Store::size() const {
  const std::lock_guard lock(mutex_);
  return objects_.size();
}

}  // namespace everstep::kube
