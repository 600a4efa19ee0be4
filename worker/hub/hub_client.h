// The hub's HTTP API: what a revision holds, what a file is, and the file itself.
#ifndef EVERSTEP_WORKER_HUB_HUB_CLIENT_H_
#define EVERSTEP_WORKER_HUB_HUB_CLIENT_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "worker/hub/http_client.h"
#include "worker/hub/hub.h"

namespace everstep {

struct ModelInfo {
  std::string commit;
  std::vector<std::string> files;
};

struct FileInfo {
  std::string etag;  // names the content; safe as a file name
  std::optional<uint64_t> size;
};

// Repeats what the network spoiled, with growing pauses.
class Retry {
 public:
  explicit Retry(const HubOptions& options) : options_(options) {}
  // After a kUnavailable error: waits, and says whether to try again.
  bool Again(const Error& error);
  // The last attempt got further than those before.
  void MadeProgress() { attempts_in_a_row_ = 0; }
  // The server asks for a pause of so many seconds ("" = it does not).
  void SetRetryAfter(const std::string& seconds);

 private:
  const HubOptions& options_;
  int attempts_in_a_row_ = 0;
  int attempts_ = 0;
  std::optional<Duration> retry_after_;
};

class HubClient {
 public:
  // `options` outlives the client and has clock and sleep set. kInvalidArgument for an endpoint
  // that is no address.
  static Result<HubClient> Create(const HubOptions& options, std::string repository);

  // With retries.
  Result<ModelInfo> GetModelInfo();
  // With retries.
  Result<FileInfo> GetFileInfo(const std::string& commit, const std::string& file);
  // One attempt to read the file from byte `offset` on. `on_start` gets the offset at which the
  // body really begins (0 when the server does not do ranges) before the first data.
  Status Download(const std::string& commit, const std::string& file, uint64_t offset,
                  const std::function<Status(uint64_t)>& on_start,
                  const std::function<Status(std::string_view)>& on_data, Retry* retry);

 private:
  HubClient(const HubOptions& options, std::string repository, Url endpoint)
      : options_(options), repository_(std::move(repository)), endpoint_(std::move(endpoint)) {}

  Url Address(const std::string& path) const;
  Url FileAddress(const std::string& commit, const std::string& file) const;
  HttpCall MakeCall(std::string method, const Url& url) const;
  HttpOptions http_options() const;
  // The error for a status that is no success; `what` is what was asked for.
  Error StatusError(const HttpHead& head, const std::string& what) const;
  Result<ModelInfo> AskModelInfo(Retry* retry);
  Result<FileInfo> AskFileInfo(const std::string& commit, const std::string& file, Retry* retry);

  const HubOptions& options_;
  std::string repository_;
  Url endpoint_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_HUB_HUB_CLIENT_H_
