// The verbs of Kubernetes' REST API, with errors as values.
#ifndef EVERSTEP_OPERATOR_KUBE_REST_CLIENT_H_
#define EVERSTEP_OPERATOR_KUBE_REST_CLIENT_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "operator/kube/resource.h"

namespace everstep::kube {

// Where one object is; `namespace_name` is "" for what belongs to no namespace.
struct ObjectRef {
  std::string namespace_name;
  std::string name;
};

struct DeleteOptions {
  std::string uid = {};  // "" = whichever object has the name; else kConflict when it is another
  std::optional<int> grace_period_seconds = {};
};

// Thread-safe. Objects are JSON as the server has them. How the server's answers come back:
//   404: kNotFound
//   409: kAlreadyExists or kConflict, by its reason
//   410, or a resource version that is too old: kAborted
//   400, 422: kInvalidArgument
//   403 over a quota: kResourceExhausted
//   401, any other 403: kFailedPrecondition
//   429, 5xx, a connection that breaks: kUnavailable
//   no answer in time: kDeadlineExceeded
// A write whose connection broke may have happened: names are deterministic, so it can be repeated.
class RestClient {
 public:
  virtual ~RestClient() = default;

  virtual Result<OrderedJson> Get(const ResourceType& type, const ObjectRef& ref) = 0;
  // Into metadata.namespace, if there is one.
  virtual Result<OrderedJson> Create(const ResourceType& type, const OrderedJson& object) = 0;
  // kConflict unless metadata.resourceVersion is the newest.
  virtual Result<OrderedJson> Update(const ResourceType& type, const OrderedJson& object) = 0;
  virtual Result<OrderedJson> UpdateStatus(const ResourceType& type, const OrderedJson& object) = 0;
  // A JSON merge patch (RFC 7396).
  virtual Result<OrderedJson> Patch(const ResourceType& type, const ObjectRef& ref,
                                    const OrderedJson& patch) = 0;
  virtual Status Delete(const ResourceType& type, const ObjectRef& ref,
                        const DeleteOptions& options) = 0;
};

}  // namespace everstep::kube

#endif  // EVERSTEP_OPERATOR_KUBE_REST_CLIENT_H_
