// The transport on cpprestsdk. Nothing of that library is seen outside of its .cc file.
#ifndef EVERSTEP_OPERATOR_KUBE_TRANSPORT_CPPREST_H_
#define EVERSTEP_OPERATOR_KUBE_TRANSPORT_CPPREST_H_

#include <memory>

#include "common/clock.h"
#include "common/result.h"
#include "operator/kube/credentials.h"
#include "operator/kube/transport.h"

namespace everstep::kube {

struct TransportOptions {
  std::string user_agent = "everstep";
  Duration request_timeout = std::chrono::seconds(15);
  // A stream on which nothing comes for this long is given up: a TCP connection that hangs says
  // nothing, while a healthy watch has a bookmark about once a minute.
  Duration silence = std::chrono::seconds(90);
  int max_requests = 32;  // at a time; others wait
};

// `clock` is borrowed. Files of `access` are read again for every new connection, the token once a
// minute and after a refusal (the request is then repeated once).
Result<std::unique_ptr<Transport>> MakeTransport(const ClusterAccess& access,
                                                 const TransportOptions& options,
                                                 const Clock& clock);

}  // namespace everstep::kube

#endif  // EVERSTEP_OPERATOR_KUBE_TRANSPORT_CPPREST_H_
