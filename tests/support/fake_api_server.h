// An API server for tests: real sockets, Kubernetes' rules for objects, and misbehaviour on
// command.
#ifndef EVERSTEP_TESTS_SUPPORT_FAKE_API_SERVER_H_
#define EVERSTEP_TESTS_SUPPORT_FAKE_API_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"

namespace everstep {

// Objects live at their paths ("/api/v1/namespaces/a/pods/b"). Every write gets a new
// resourceVersion; an old one is a conflict; status is a subresource; lists come in pages; watches
// start at a version and get bookmarks on command.
class FakeApiServer {
 public:
  struct Answer {
    int status = 200;
    std::string body = {};
    std::optional<int> retry_after = {};
    bool close_without_answer = false;
  };
  struct Seen {
    std::string method, path, query, authorization, body;
  };
  // Given to every request first; an answer replaces the server's own.
  using Intercept = std::function<std::optional<Answer>(const Seen&)>;

  // Port 0: any free one.
  explicit FakeApiServer(uint16_t port = 0);
  ~FakeApiServer();
  FakeApiServer(const FakeApiServer&) = delete;
  FakeApiServer& operator=(const FakeApiServer&) = delete;

  uint16_t port() const;
  std::string url() const;
  void SetIntercept(Intercept intercept);
  std::vector<Seen> seen() const;
  size_t watches() const;  // open ones

  // As another client of it would.
  OrderedJson Put(const std::string& path, OrderedJson object);
  void Remove(const std::string& path);
  std::optional<OrderedJson> Get(const std::string& path) const;
  int64_t version() const;

  // To all open watches.
  void SendBookmarks();
  void SendRaw(const std::string& bytes);
  void EndWatches();  // in order
  void CutWatches();  // in the middle of a line
  // Watches from an earlier version than the newest are answered with 410.
  void ForgetHistory();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // with its connections' threads
};

}  // namespace everstep

#endif  // EVERSTEP_TESTS_SUPPORT_FAKE_API_SERVER_H_
