// Requests to an API server, and streams of lines from it. The seam under which a library does
// HTTP.
#ifndef EVERSTEP_OPERATOR_KUBE_TRANSPORT_H_
#define EVERSTEP_OPERATOR_KUBE_TRANSPORT_H_

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "common/clock.h"
#include "common/result.h"

namespace everstep::kube {

struct HttpRequest {
  std::string method = "GET";
  std::string path = {};          // with the query, percent-encoded
  std::string content_type = {};  // of the body
  std::string body = {};
};

struct HttpResponse {
  int status = 0;
  std::string body = {};
  std::optional<Duration> retry_after = {};
};

// An answer that comes line by line. One reader; Cancel() from any thread.
class LineStream {
 public:
  virtual ~LineStream() = default;
  // Without its line break. kUnavailable: the stream has ended or broken (a line that was cut is
  // not given), or nothing came for too long; kAborted: it was cancelled.
  virtual Result<std::string> ReadLine() = 0;
  virtual void Cancel() = 0;
};

struct OpenedStream {
  HttpResponse response;               // its body only when there is no stream
  std::unique_ptr<LineStream> stream;  // when the status is 200
};

// Thread-safe. Every status is an answer; kUnavailable or kDeadlineExceeded when there is none.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual Result<HttpResponse> Send(const HttpRequest& request) = 0;
  // Must not outlive the transport. `stop` ends the waiting for an answer (kAborted); the stream
  // has its own Cancel().
  virtual Result<OpenedStream> Open(const std::string& path, const std::stop_token& stop) = 0;
};

}  // namespace everstep::kube

#endif  // EVERSTEP_OPERATOR_KUBE_TRANSPORT_H_
