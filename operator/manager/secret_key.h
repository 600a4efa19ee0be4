// The operator's own secret, from which each job's is derived: jobs outlive operators, so it is
// kept in a Secret.
#ifndef EVERSTEP_OPERATOR_MANAGER_SECRET_KEY_H_
#define EVERSTEP_OPERATOR_MANAGER_SECRET_KEY_H_

#include <string>

#include "common/result.h"
#include "operator/kube/rest_client.h"

namespace everstep {

// What `ref` holds under "key"; made if it is not there. Two operators that make it at once agree.
Result<std::string> EnsureSecretKey(kube::RestClient& client, const kube::ObjectRef& ref);

// What the pods of the job with `uid` show each other and rendezvous (HMAC-SHA256, as hexadecimal
// digits).
std::string JobToken(const std::string& key, const std::string& uid);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_MANAGER_SECRET_KEY_H_
