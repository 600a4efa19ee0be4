#include "operator/kube/kube_object_client.h"

#include <algorithm>
#include <array>

#include "operator/api/names.h"
#include "operator/api/object_key.h"

namespace everstep::kube {
namespace {

Result<ResourceType> TypeOf(const std::string& kind) {
  static constexpr std::array kKnown{kTrainingJobs, kPods,   kServices,        kConfigMaps,
                                     kSecrets,      kClaims, kNetworkPolicies, kNodes};
  const auto found = std::ranges::find(kKnown, kind, &ResourceType::kind);
  if (found == kKnown.end()) return Internal("no such kind of object: " + kind);
  return *found;
}

bool IsWatched(const std::string& kind) { return kind == kTrainingJobs.kind || kind == kPods.kind; }

ObjectRef RefOf(const std::string& key) { return {NamespaceOf(key), NameOf(key)}; }

}  // namespace

KubeObjectClient::KubeObjectClient(ApiClient& client, const std::vector<std::string>& namespaces,
                                   const Clock& clock)
    : client_(client) {
  const std::vector<std::string> watched =
      namespaces.empty() ? std::vector<std::string>{""} : namespaces;
  for (const std::string& name : watched) {
    watchers_.push_back(std::make_unique<Watcher>(
        Watcher::Options{.type = kTrainingJobs, .namespace_name = name}, client_, store_, clock));
    watchers_.push_back(std::make_unique<Watcher>(
        Watcher::Options{.type = kPods, .namespace_name = name, .label_selector = names::kJobLabel},
        client_, store_, clock));
  }
}

bool KubeObjectClient::synced() const {
  return std::ranges::all_of(watchers_, [](const auto& watcher) { return watcher->synced(); });
}

Result<OrderedJson> KubeObjectClient::Get(const std::string& kind, const std::string& key) {
  if (!IsWatched(kind)) {
    ASSIGN_OR_RETURN(const ResourceType type, TypeOf(kind));
    return client_.Get(type, RefOf(key));
  }
  if (auto object = store_.Get(kind, key)) return std::move(*object);
  return NotFound(kind + " '" + key + "' does not exist");
}

Result<std::vector<OrderedJson>> KubeObjectClient::List(const std::string& kind) {
  if (!IsWatched(kind)) return Internal(kind + " is not watched");
  return store_.List(kind);
}

Result<std::vector<OrderedJson>> KubeObjectClient::ListOf(const std::string& kind,
                                                          const std::string& job_key) {
  if (!IsWatched(kind)) return Internal(kind + " is not watched");
  return store_.ListOf(kind, job_key);
}

Result<OrderedJson> KubeObjectClient::Change(Write write, const OrderedJson& object) {
  const std::string kind = object.value("kind", "");
  ASSIGN_OR_RETURN(const ResourceType type, TypeOf(kind));
  auto written = (client_.*write)(type, object);
  if (!IsWatched(kind)) return written;
  if (written) {
    if (!IsWellFormed(*written)) return Unavailable("the answer to a write is no " + kind);
    store_.Put(*written);
  } else if (written.error().code == ErrorCode::kConflict ||
             written.error().code == ErrorCode::kAlreadyExists) {
    const auto newest = client_.Get(type, RefOf(KeyOf(object)));
    if (newest && IsWellFormed(*newest)) store_.Put(*newest);
  } else if (written.error().code == ErrorCode::kNotFound) {
    store_.Remove(object);
  }
  return written;
}

Result<OrderedJson> KubeObjectClient::Create(OrderedJson object) {
  return Change(&ApiClient::Create, object);
}
Result<OrderedJson> KubeObjectClient::Update(OrderedJson object) {
  return Change(&ApiClient::Update, object);
}
Result<OrderedJson> KubeObjectClient::UpdateStatus(OrderedJson object) {
  return Change(&ApiClient::UpdateStatus, object);
}

Status KubeObjectClient::Delete(const std::string& kind, const std::string& key) {
  ASSIGN_OR_RETURN(const ResourceType type, TypeOf(kind));
  DeleteOptions options;
  if (const auto known = store_.Get(kind, key)) options.uid = (*known)["metadata"].value("uid", "");
  return client_.Delete(type, RefOf(key), options);
}

void KubeObjectClient::Subscribe(
    std::function<void(const std::string& kind, const std::string& key)> on_change) {
  store_.Subscribe(std::move(on_change));
}

}  // namespace everstep::kube
