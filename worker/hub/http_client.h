// One HTTP/1.1 request over TCP or TLS. Redirects, retries and meaning are for the caller.
#ifndef EVERSTEP_WORKER_HUB_HTTP_CLIENT_H_
#define EVERSTEP_WORKER_HUB_HTTP_CLIENT_H_

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "worker/hub/url.h"

namespace everstep {

struct HttpHead {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case

  // The header's value, or "".
  std::string Header(const std::string& lower_case_name) const;
};

struct HttpCall {
  std::string method = "GET";  // or HEAD
  Url url;
  std::vector<std::pair<std::string, std::string>> headers;
  // Called with the response's head, then with the body as it comes in. The first error ends the
  // call and is returned. Without on_data the body is not read.
  std::function<Status(const HttpHead&)> on_head;
  std::function<Status(std::string_view)> on_data;
};

struct HttpOptions {
  std::chrono::milliseconds connect_timeout{10000};
  // The longest silence of the other side, not the longest transfer.
  std::chrono::milliseconds silence_timeout{60000};
};

// Blocks until the response is complete. kUnavailable for whatever the network can do (refused,
// reset, closed midway, silent); kFailedPrecondition when the certificate is not trusted. Trusted
// are the system's authorities, or those of SSL_CERT_FILE and SSL_CERT_DIR.
Result<HttpHead> PerformHttp(const HttpCall& call, const HttpOptions& options);

// The whole body of a GET, up to `max_bytes`.
struct HttpText {
  HttpHead head;
  std::string body;
};
Result<HttpText> GetText(HttpCall call, size_t max_bytes, const HttpOptions& options);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_HUB_HTTP_CLIENT_H_
