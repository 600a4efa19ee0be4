// Where the API server is and as whom to speak to it: from a pod's service account, or from a
// kubeconfig file.
#ifndef EVERSTEP_OPERATOR_KUBE_CREDENTIALS_H_
#define EVERSTEP_OPERATOR_KUBE_CREDENTIALS_H_

#include <map>
#include <mutex>
#include <string>

#include "common/clock.h"
#include "common/result.h"

namespace everstep::kube {

// PEM texts are given as such, or as the file that has them (which may change: certificates and
// tokens are rotated).
struct ClusterAccess {
  std::string server = {};  // "https://10.96.0.1:443"
  std::string namespace_name = "default";
  std::string authority = {}, authority_file = {};
  std::string client_certificate = {}, client_certificate_file = {};
  std::string client_key = {}, client_key_file = {};
  std::string token = {}, token_file = {};
  bool insecure_skip_verify = false;
};

// What Kubernetes puts into every pod that may speak to it. kNotFound outside of a pod.
Result<ClusterAccess> AccessFromPod(
    const std::map<std::string, std::string>& environment,
    const std::string& directory = "/var/run/secrets/kubernetes.io/serviceaccount");

// The context `context`, or the current one when that is empty. Every error names file and key.
Result<ClusterAccess> AccessFromKubeconfig(const std::string& path,
                                           const std::string& context = "");

// The token to show now; "" for none. Thread-safe.
class TokenSource {
 public:
  // A file is read again after this, and after Drop().
  static constexpr std::chrono::seconds kReadAgain{60};

  // `clock` is borrowed.
  TokenSource(const ClusterAccess& access, const Clock& clock);
  Result<std::string> Get();
  // The server did not accept it.
  void Drop();

 private:
  const std::string fixed_, file_;
  const Clock& clock_;
  std::mutex mutex_;
  std::string token_;
  TimePoint read_at_{};
  bool fresh_ = false;
};

}  // namespace everstep::kube

#endif  // EVERSTEP_OPERATOR_KUBE_CREDENTIALS_H_
