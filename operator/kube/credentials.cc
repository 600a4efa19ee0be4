#include "operator/kube/credentials.h"

#include <openssl/evp.h>

#include <filesystem>
#include <vector>

#include "common/files.h"
#include "common/strings.h"
#include "operator/api/document.h"

namespace everstep::kube {
namespace {

namespace fs = std::filesystem;

std::string Variable(const std::map<std::string, std::string>& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

Result<std::string> FromBase64(const std::string& text) {
  std::string clean;
  for (const char c : text) {
    if (c != '\n' && c != ' ') clean += c;
  }
  std::vector<unsigned char> bytes(clean.size() / 4 * 3 + 3);
  const int size =
      EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(clean.data()),
                      static_cast<int>(clean.size()));
  if (size < 0) return InvalidArgument("is not base64");
  size_t padding = 0;
  while (padding < clean.size() && clean[clean.size() - 1 - padding] == '=') ++padding;
  return std::string(bytes.begin(), bytes.begin() + size - static_cast<int>(padding));
}

class Kubeconfig {
 public:
  Kubeconfig(std::string path, OrderedJson document)
      : path_(std::move(path)), document_(std::move(document)) {}

  Result<ClusterAccess> Read(std::string context_name) {
    if (context_name.empty()) context_name = Text(document_, "current-context");
    if (context_name.empty()) {
      return InvalidArgument(path_ + ": current-context: is missing: set it, or name a context");
    }
    ASSIGN_OR_RETURN(const OrderedJson context, Find("contexts", "context", context_name));
    ASSIGN_OR_RETURN(const OrderedJson cluster,
                     Find("clusters", "cluster", Text(context, "cluster")));
    ASSIGN_OR_RETURN(const OrderedJson user, Find("users", "user", Text(context, "user")));
    for (const char* key : {"exec", "auth-provider"}) {
      if (user.contains(key)) {
        return InvalidArgument(path_ + ": users[" + Text(context, "user") + "]." + key +
                               ": credentials of other programs are not supported: give a token, a "
                               "tokenFile or a client certificate");
      }
    }
    ClusterAccess access;
    access.server = Text(cluster, "server");
    if (access.server.empty()) {
      return InvalidArgument(path_ + ": clusters[" + Text(context, "cluster") +
                             "].server: is missing");
    }
    if (const std::string name = Text(context, "namespace"); !name.empty()) {
      access.namespace_name = name;
    }
    access.insecure_skip_verify = cluster.value("insecure-skip-tls-verify", false);
    access.token = Text(user, "token");
    access.token_file = File(user, "tokenFile");
    RETURN_IF_ERROR(Pem(cluster, "certificate-authority", access.authority, access.authority_file));
    RETURN_IF_ERROR(
        Pem(user, "client-certificate", access.client_certificate, access.client_certificate_file));
    RETURN_IF_ERROR(Pem(user, "client-key", access.client_key, access.client_key_file));
    return access;
  }

 private:
  static std::string Text(const OrderedJson& object, const char* key) {
    return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
  }
  // Relative to the kubeconfig's folder.
  std::string File(const OrderedJson& object, const char* key) const {
    const std::string name = Text(object, key);
    if (name.empty() || name.front() == '/') return name;
    return (fs::path(path_).parent_path() / name).string();
  }
  Status Pem(const OrderedJson& object, const std::string& key, std::string& text,
             std::string& file) const {
    file = File(object, key.c_str());
    const std::string data = Text(object, (key + "-data").c_str());
    if (data.empty()) return {};
    const auto decoded = FromBase64(data);
    if (!decoded) {
      return InvalidArgument(path_ + ": " + key + "-data: " + decoded.error().message);
    }
    text = *decoded;
    return {};
  }
  Result<OrderedJson> Find(const char* list, const char* what, const std::string& name) const {
    if (document_.contains(list) && document_[list].is_array()) {
      for (const OrderedJson& entry : document_[list]) {
        if (Text(entry, "name") == name && entry.contains(what) && entry[what].is_object()) {
          return entry[what];
        }
      }
    }
    return InvalidArgument(path_ + ": " + list + ": has no '" + name + "'");
  }

  const std::string path_;
  const OrderedJson document_;
};

}  // namespace

Result<ClusterAccess> AccessFromPod(const std::map<std::string, std::string>& environment,
                                    const std::string& directory) {
  const std::string host = Variable(environment, "KUBERNETES_SERVICE_HOST");
  const std::string port = Variable(environment, "KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return NotFound("KUBERNETES_SERVICE_HOST and _PORT are not set: this is not a pod");
  }
  ClusterAccess access;
  // The transport cannot take an IPv6 address; this name is in the API server's certificate too.
  const bool v6 = host.find(':') != std::string::npos;
  access.server = "https://" + (v6 ? "kubernetes.default.svc" : host) + ":" + port;
  access.authority_file = directory + "/ca.crt";
  access.token_file = directory + "/token";
  if (const auto name = ReadFile(directory + "/namespace")) {
    access.namespace_name = std::string(Trim(*name));
  }
  return access;
}

Result<ClusterAccess> AccessFromKubeconfig(const std::string& path, const std::string& context) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(const Document document, ParseDocument(text, path));
  return Kubeconfig(path, document.value).Read(context);
}

TokenSource::TokenSource(const ClusterAccess& access, const Clock& clock)
    : fixed_(access.token), file_(access.token_file), clock_(clock) {}

Result<std::string> TokenSource::Get() {
  if (file_.empty()) return fixed_;
  const std::lock_guard lock(mutex_);
  if (fresh_ && clock_.Now() - read_at_ < kReadAgain) return token_;
  const auto text = ReadFile(file_);
  if (!text) return MakeError(ErrorCode::kUnavailable, text.error().message);
  token_ = std::string(Trim(*text));
  read_at_ = clock_.Now();
  fresh_ = true;
  return token_;
}

void TokenSource::Drop() {
  const std::lock_guard lock(mutex_);
  fresh_ = false;
}

}  // namespace everstep::kube
