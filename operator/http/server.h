// A small HTTP server for probes and scrapes: GET and HEAD of a few paths.
#ifndef EVERSTEP_OPERATOR_HTTP_SERVER_H_
#define EVERSTEP_OPERATOR_HTTP_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/result.h"

namespace everstep {

struct HttpAnswer {
  int status = 200;
  std::string body = {};
  std::string content_type = "text/plain; charset=utf-8";
};

// One thread serves all connections. A client that is slow, too large or that speaks something else
// loses its own connection only.
class HttpServer {
 public:
  // Called on the server's thread; must be quick.
  using Handler = std::function<HttpAnswer()>;
  struct Options {
    std::string address = "0.0.0.0";
    uint16_t port = 0;                                // 0: any free one
    std::chrono::milliseconds request_timeout{5000};  // for a whole request
    std::chrono::milliseconds idle_timeout{60000};    // between two
  };

  static constexpr size_t kMaxConnections = 256;
  static constexpr size_t kMaxHeaderBytes = 8 << 10;

  // `routes`: path -> handler.
  static Result<std::unique_ptr<HttpServer>> Start(const Options& options,
                                                   std::map<std::string, Handler> routes);
  // Closes all connections; no handler is called after it.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_HTTP_SERVER_H_
