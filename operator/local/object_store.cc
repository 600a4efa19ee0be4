#include "operator/local/object_store.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <random>

#include "common/files.h"
#include "common/log.h"
#include "operator/api/names.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

std::string NewUid() {
  std::random_device random;
  char text[40];
  std::snprintf(text, sizeof(text), "%08x-%04x-4%03x-%04x-%08x%04x", random(), random() & 0xffff,
                random() & 0xfff, 0x8000 | (random() & 0x3fff), random(), random() & 0xffff);
  return text;
}

bool IsAlive(const std::string& kind, const OrderedJson& object) {
  return kind == "Pod" && object.contains("status") &&
         object["status"].value("phase", "Pending") == "Running";
}

bool Owns(const OrderedJson& owned, const std::string& uid) {
  const OrderedJson& metadata = owned["metadata"];
  if (!metadata.contains("ownerReferences")) return false;
  return std::ranges::any_of(metadata["ownerReferences"], [&](const OrderedJson& reference) {
    return reference.value("uid", "") == uid;
  });
}

// The object's resourceVersion, or what is wrong with the file it was read from.
Result<int64_t> CheckStored(const OrderedJson& object, const std::string& path) {
  int64_t version = 0;
  const bool shaped = object.is_object() && object.contains("kind") && object["kind"].is_string() &&
                      object.contains("metadata") && object["metadata"].is_object() &&
                      object["metadata"].contains("name") && object["metadata"]["name"].is_string();
  const std::string text = shaped ? object["metadata"].value("resourceVersion", "") : "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (!shaped || text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return DataLoss(path + ": is not an object of a job: remove the file, or the job's folder");
  }
  return version;
}

}  // namespace

ObjectStore::ObjectStore(std::string directory, const Clock& clock)
    : directory_(std::move(directory)), clock_(clock) {}

Result<std::unique_ptr<ObjectStore>> ObjectStore::Open(const std::string& directory,
                                                       const Clock& clock) {
  RETURN_IF_ERROR(MakeDirectories(directory));
  std::unique_ptr<ObjectStore> store(new ObjectStore(directory, clock));
  RETURN_IF_ERROR(store->LoadAll());
  return store;
}

Status ObjectStore::LoadAll() {
  for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
    if (!entry.is_regular_file() || entry.path().extension() != ".json") continue;
    ASSIGN_OR_RETURN(const std::string text, ReadFile(entry.path()));
    ASSIGN_OR_RETURN(OrderedJson object, ParseOrderedJson(text, entry.path().string()));
    ASSIGN_OR_RETURN(const int64_t version, CheckStored(object, entry.path()));
    newest_version_ = std::max(newest_version_, version);
    const Key key{object["kind"], object["metadata"]["name"]};
    objects_[key] = std::move(object);
  }
  return {};
}

std::string ObjectStore::PathOf(const Key& key) const {
  return directory_ + "/" + key.first + "/" + key.second + ".json";
}

Status ObjectStore::Write(const Key& key, OrderedJson object) {
  object["metadata"]["resourceVersion"] = std::to_string(++newest_version_);
  RETURN_IF_ERROR(MakeDirectories(directory_ + "/" + key.first));
  RETURN_IF_ERROR(WriteFileAtomically(PathOf(key), DumpJson(object, 2) + "\n"));
  objects_[key] = std::move(object);
  return {};
}

void ObjectStore::Notify(const std::vector<Key>& changed) {
  if (changed.empty()) return;
  // Called without the lock: a subscriber may use the store.
  std::unique_lock lock(mutex_);
  const auto subscribers = subscribers_;
  lock.unlock();
  for (const auto& [kind, name] : changed) {
    for (const auto& subscriber : subscribers) subscriber(kind, name);
  }
}

Result<OrderedJson> ObjectStore::Get(const std::string& kind, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find({kind, name});
  if (found == objects_.end()) return NotFound(kind + " '" + name + "' does not exist");
  return found->second;
}

Result<std::vector<OrderedJson>> ObjectStore::List(const std::string& kind) {
  const std::lock_guard lock(mutex_);
  std::vector<OrderedJson> list;
  for (const auto& [key, object] : objects_) {
    if (key.first == kind) list.push_back(object);
  }
  return list;
}

Result<std::vector<OrderedJson>> ObjectStore::ListOf(const std::string& kind,
                                                     const std::string& job_key) {
  ASSIGN_OR_RETURN(std::vector<OrderedJson> list, List(kind));
  std::erase_if(list, [&](const OrderedJson& object) {
    const OrderedJson labels = object["metadata"].value("labels", OrderedJson::object());
    return labels.value(names::kJobLabel, "") != job_key;
  });
  return list;
}

Result<OrderedJson> ObjectStore::Create(OrderedJson object) {
  const Key key{object.value("kind", ""), object["metadata"].value("name", "")};
  OrderedJson created;
  {
    const std::lock_guard lock(mutex_);
    if (objects_.contains(key)) {
      return MakeError(ErrorCode::kAlreadyExists,
                       key.first + " '" + key.second + "' exists already");
    }
    object["metadata"]["uid"] = NewUid();
    object["metadata"]["generation"] = 1;
    object["metadata"]["creationTimestamp"] = FormatTime(clock_.WallNow());
    RETURN_IF_ERROR(Write(key, std::move(object)));
    created = objects_[key];
  }
  Notify({key});
  return created;
}

Result<OrderedJson> ObjectStore::Replace(OrderedJson object, bool status_only) {
  const Key key{object.value("kind", ""), object["metadata"].value("name", "")};
  OrderedJson written;
  {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(key);
    if (found == objects_.end()) return NotFound(key.first + " '" + key.second + "' is gone");
    const OrderedJson& current = found->second;
    if (object["metadata"]["resourceVersion"] != current["metadata"]["resourceVersion"]) {
      return MakeError(ErrorCode::kConflict, key.first + " '" + key.second +
                                                 "' was changed by somebody else: read it again");
    }
    OrderedJson next = status_only ? current : object;
    if (status_only) {
      next["status"] = object["status"];
    } else {
      if (current.contains("status")) next["status"] = current["status"];
      next["metadata"]["uid"] = current["metadata"]["uid"];
      const int64_t generation = current["metadata"].value("generation", int64_t{1});
      next["metadata"]["generation"] =
          next["spec"] == current["spec"] ? generation : generation + 1;
    }
    RETURN_IF_ERROR(Write(key, std::move(next)));
    written = objects_[key];
  }
  Notify({key});
  return written;
}

Result<OrderedJson> ObjectStore::Update(OrderedJson object) {
  return Replace(std::move(object), /*status_only=*/false);
}

Result<OrderedJson> ObjectStore::UpdateStatus(OrderedJson object) {
  return Replace(std::move(object), /*status_only=*/true);
}

void ObjectStore::Erase(const Key& key, std::vector<Key>& changed) {
  const auto found = objects_.find(key);
  if (found == objects_.end()) return;
  const std::string uid = found->second["metadata"].value("uid", "");
  std::error_code ignored;
  fs::remove(PathOf(key), ignored);
  objects_.erase(found);
  changed.push_back(key);
  std::vector<Key> owned;
  for (const auto& [other, object] : objects_) {
    if (Owns(object, uid)) owned.push_back(other);
  }
  for (const Key& other : owned) {
    if (!IsAlive(other.first, objects_[other])) {
      Erase(other, changed);
    } else if (const Status marked = MarkDeleted(other, changed); !marked) {
      LogWarning(marked.error().message);
    }
  }
}

// Its processes have to end first; whoever runs them removes it then.
Status ObjectStore::MarkDeleted(const Key& key, std::vector<Key>& changed) {
  OrderedJson pod = objects_[key];
  if (pod["metadata"].contains("deletionTimestamp")) return {};
  pod["metadata"]["deletionTimestamp"] = FormatTime(clock_.WallNow());
  RETURN_IF_ERROR(Write(key, std::move(pod)));
  changed.push_back(key);
  return {};
}

Status ObjectStore::Delete(const std::string& kind, const std::string& name) {
  std::vector<Key> changed;
  {
    const std::lock_guard lock(mutex_);
    const Key key{kind, name};
    const auto found = objects_.find(key);
    if (found == objects_.end()) return NotFound(kind + " '" + name + "' does not exist");
    if (IsAlive(kind, found->second)) {
      RETURN_IF_ERROR(MarkDeleted(key, changed));
    } else {
      Erase(key, changed);
    }
  }
  Notify(changed);
  return {};
}

Status ObjectStore::Remove(const std::string& kind, const std::string& name) {
  std::vector<Key> changed;
  {
    const std::lock_guard lock(mutex_);
    Erase({kind, name}, changed);
  }
  Notify(changed);
  return {};
}

void ObjectStore::Subscribe(
    std::function<void(const std::string& kind, const std::string& name)> on_change) {
  const std::lock_guard lock(mutex_);
  subscribers_.push_back(std::move(on_change));
}

}  // namespace everstep
