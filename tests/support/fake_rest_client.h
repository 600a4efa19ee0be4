// Objects in memory with the API server's rules for versions, and errors on command.
#ifndef EVERSTEP_TESTS_SUPPORT_FAKE_REST_CLIENT_H_
#define EVERSTEP_TESTS_SUPPORT_FAKE_REST_CLIENT_H_

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "operator/kube/rest_client.h"

namespace everstep {

class FakeRestClient final : public kube::RestClient {
 public:
  // Asked before every call with its verb; an error is returned instead of doing it.
  void SetIntercept(std::function<Status(const std::string& verb)> intercept) {
    const std::lock_guard lock(mutex_);
    intercept_ = std::move(intercept);
  }

  Result<OrderedJson> Get(const kube::ResourceType& type, const kube::ObjectRef& ref) override {
    const std::lock_guard lock(mutex_);
    if (intercept_) RETURN_IF_ERROR(intercept_("get"));
    return Find(PathOf(type, ref));
  }
  Result<OrderedJson> Create(const kube::ResourceType& type, const OrderedJson& object) override {
    const std::lock_guard lock(mutex_);
    if (intercept_) RETURN_IF_ERROR(intercept_("create"));
    const std::string path = PathOf(type, RefOf(object));
    if (objects_.contains(path)) return MakeError(ErrorCode::kAlreadyExists, path);
    return Write(path, object);
  }
  Result<OrderedJson> Update(const kube::ResourceType& type, const OrderedJson& object) override {
    const std::lock_guard lock(mutex_);
    if (intercept_) RETURN_IF_ERROR(intercept_("update"));
    const std::string path = PathOf(type, RefOf(object));
    ASSIGN_OR_RETURN(const OrderedJson known, Find(path));
    if (known["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"]) {
      return MakeError(ErrorCode::kConflict, path);
    }
    return Write(path, object);
  }
  Result<OrderedJson> UpdateStatus(const kube::ResourceType& type,
                                   const OrderedJson& object) override {
    return Update(type, object);
  }
  Result<OrderedJson> Patch(const kube::ResourceType& type, const kube::ObjectRef& ref,
                            const OrderedJson& patch) override {
    const std::lock_guard lock(mutex_);
    if (intercept_) RETURN_IF_ERROR(intercept_("patch"));
    ASSIGN_OR_RETURN(OrderedJson object, Find(PathOf(type, ref)));
    object.merge_patch(patch);
    return Write(PathOf(type, ref), object);
  }
  Status Delete(const kube::ResourceType& type, const kube::ObjectRef& ref,
                const kube::DeleteOptions&) override {
    const std::lock_guard lock(mutex_);
    if (intercept_) RETURN_IF_ERROR(intercept_("delete"));
    if (objects_.erase(PathOf(type, ref)) == 0) return NotFound(ref.name);
    return {};
  }

 private:
  static kube::ObjectRef RefOf(const OrderedJson& object) {
    return {object["metadata"].value("namespace", ""), object["metadata"].value("name", "")};
  }
  static std::string PathOf(const kube::ResourceType& type, const kube::ObjectRef& ref) {
    return kube::ResourcePath(type, ref.namespace_name, ref.name);
  }
  Result<OrderedJson> Find(const std::string& path) const {
    const auto found = objects_.find(path);
    if (found == objects_.end()) return NotFound(path);
    return found->second;
  }
  OrderedJson Write(const std::string& path, OrderedJson object) {
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    return objects_[path] = std::move(object);
  }

  std::mutex mutex_;
  std::map<std::string, OrderedJson> objects_;
  int64_t version_ = 0;
  std::function<Status(const std::string&)> intercept_;
};

}  // namespace everstep

#endif  // EVERSTEP_TESTS_SUPPORT_FAKE_REST_CLIENT_H_
