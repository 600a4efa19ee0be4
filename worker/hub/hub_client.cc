#include "worker/hub/hub_client.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "common/json.h"
#include "worker/hub/cache_layout.h"

namespace everstep {
namespace {

constexpr size_t kMaxInfoBytes = 32 << 20;
constexpr size_t kMaxFiles = 100000;

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool IsTransient(int status) {
  return status == 408 || status == 425 || status == 429 || status >= 500;
}

std::optional<uint64_t> ParseSize(const std::string& text) {
  uint64_t size = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), size);
  if (text.empty() || result.ec != std::errc()) return std::nullopt;
  return size;
}

// W/"abc" and "abc" are abc.
std::string PlainEtag(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  return etag;
}

// "bytes 100-199/200" -> 100.
std::optional<uint64_t> RangeStart(const std::string& content_range) {
  constexpr std::string_view kUnit = "bytes ";
  if (!content_range.starts_with(kUnit)) return std::nullopt;
  const std::string range = content_range.substr(kUnit.size());
  return ParseSize(range.substr(0, range.find('-')));
}

std::string FormatSeconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", Seconds(duration));
  return text;
}

}  // namespace

bool Retry::Again(const Error& error) {
  if (error.code != ErrorCode::kUnavailable) return false;
  ++attempts_;
  ++attempts_in_a_row_;
  if (attempts_in_a_row_ >= options_.max_attempts || attempts_ >= kMaxTotalAttempts) return false;
  Duration pause = options_.first_backoff * (1 << std::min(attempts_in_a_row_ - 1, 10));
  if (retry_after_.has_value()) pause = std::max(pause, *retry_after_);
  pause = std::min(pause, kMaxBackoff);
  retry_after_.reset();
  if (options_.progress) {
    options_.progress(error.message + "; trying again in " + FormatSeconds(pause));
  }
  options_.sleep(pause);
  return true;
}

void Retry::SetRetryAfter(const std::string& seconds) {
  const auto value = ParseSize(seconds);
  if (!value.has_value()) return;
  const auto most =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(kMaxBackoff).count());
  retry_after_ = std::chrono::seconds(std::min(*value, most));
}

Result<HubClient> HubClient::Create(const HubOptions& options, std::string repository) {
  auto endpoint = ParseUrl(options.endpoint);
  if (!endpoint.has_value()) {
    return InvalidArgument("HF_ENDPOINT: " + endpoint.error().message +
                           ": set it to one such as https://huggingface.co");
  }
  while (endpoint->target.ends_with('/')) endpoint->target.pop_back();
  return HubClient(options, std::move(repository), *endpoint);
}

Url HubClient::Address(const std::string& path) const {
  Url url = endpoint_;
  url.target += path;
  return url;
}

Url HubClient::FileAddress(const std::string& commit, const std::string& file) const {
  return Address("/" + repository_ + "/resolve/" + PercentEncode(commit, false) + "/" +
                 PercentEncode(file, true));
}

HttpCall HubClient::MakeCall(std::string method, const Url& url) const {
  HttpCall call;
  call.method = std::move(method);
  call.url = url;
  // Whoever else is redirected to must not see the token.
  if (!options_.token.empty() && url.SameOrigin(endpoint_)) {
    call.headers.emplace_back("Authorization", "Bearer " + options_.token);
  }
  return call;
}

HttpOptions HubClient::http_options() const {
  return {.connect_timeout = options_.connect_timeout, .silence_timeout = options_.silence_timeout};
}

Error HubClient::StatusError(const HttpHead& head, const std::string& what) const {
  const std::string reason = head.Header("x-error-code");
  const std::string model = "model '" + repository_ + "'";
  const std::string status = "HTTP status " + std::to_string(head.status);
  if (reason == "GatedRepo") {
    return {ErrorCode::kFailedPrecondition, model + " is gated: accept its terms at " +
                                                endpoint_.Text() + "/" + repository_ +
                                                ", and set HF_TOKEN to a token of that account"};
  }
  if (reason == "RevisionNotFound") {
    return {ErrorCode::kNotFound, model + " has no revision '" + options_.revision +
                                      "': set model_revision to one that it has"};
  }
  if (reason == "RepoNotFound" || (head.status == 401 && options_.token.empty())) {
    return {ErrorCode::kNotFound, model + " is neither a directory nor on " + endpoint_.Text() +
                                      ": check the name, and set HF_TOKEN if the model is private"};
  }
  if (head.status == 401 || head.status == 403) {
    return {ErrorCode::kFailedPrecondition, model + ": the hub refuses the token (" + status +
                                                "): set HF_TOKEN to one that may read this model"};
  }
  if (IsTransient(head.status)) {
    return {ErrorCode::kUnavailable, endpoint_.HostHeader() + ": " + status + " for " + what};
  }
  if (head.status == 404) {
    return {ErrorCode::kNotFound, endpoint_.Text() + " has no " + what + " of " + model +
                                      ": check model_name_or_path and model_revision"};
  }
  return {ErrorCode::kFailedPrecondition, endpoint_.Text() + ": " + status + " for " + what +
                                              " of " + model + ": check HF_ENDPOINT"};
}

Result<ModelInfo> HubClient::AskModelInfo(Retry* retry) {
  Url url = Address("/api/models/" + repository_ + "/revision/" +
                    PercentEncode(options_.revision, false));
  HttpText text;
  for (int i = 0; i <= kMaxRedirects; ++i) {
    ASSIGN_OR_RETURN(text, GetText(MakeCall("GET", url), kMaxInfoBytes, http_options()));
    if (!IsRedirect(text.head.status)) break;
    ASSIGN_OR_RETURN(url, ResolveLocation(url, text.head.Header("location")));
  }
  if (text.head.status != 200) {
    retry->SetRetryAfter(text.head.Header("retry-after"));
    return tl::unexpected<Error>(StatusError(text.head, "the list of files"));
  }
  ASSIGN_OR_RETURN(const Json json, ParseJson(text.body, url.Text()));
  ModelInfo info;
  info.commit = JsonValue<std::string>(json, "sha", "");
  const auto siblings = json.is_object() ? json.find("siblings") : json.end();
  if (!IsCommit(info.commit) || siblings == json.end() || !siblings->is_array() ||
      siblings->size() > kMaxFiles) {
    return DataLoss(url.Text() + ": the answer is no description of a model: check HF_ENDPOINT");
  }
  for (const Json& sibling : *siblings) {
    std::string file = JsonValue<std::string>(sibling, "rfilename", "");
    if (IsSafeRelativePath(file)) info.files.push_back(std::move(file));
  }
  return info;
}

Result<ModelInfo> HubClient::GetModelInfo() {
  Retry retry(options_);
  while (true) {  // bounded by Retry
    auto info = AskModelInfo(&retry);
    if (info.has_value() || !retry.Again(info.error())) return info;
  }
}

Result<FileInfo> HubClient::AskFileInfo(const std::string& commit, const std::string& file,
                                        Retry* retry) {
  Url url = FileAddress(commit, file);
  std::string etag;
  std::string size;
  for (int i = 0; i <= kMaxRedirects; ++i) {
    ASSIGN_OR_RETURN(const HttpHead head, PerformHttp(MakeCall("HEAD", url), http_options()));
    const bool redirected = IsRedirect(head.status);
    if (!redirected && head.status != 200) {
      retry->SetRetryAfter(head.Header("retry-after"));
      return tl::unexpected<Error>(StatusError(head, "file '" + file + "'"));
    }
    // A redirect's own tag and length are not those of the file; the linked ones are.
    etag = PlainEtag(head.Header("x-linked-etag"));
    size = head.Header("x-linked-size");
    if (!redirected && etag.empty()) etag = PlainEtag(head.Header("etag"));
    if (!redirected && size.empty()) size = head.Header("content-length");
    if (!redirected || !etag.empty()) break;
    ASSIGN_OR_RETURN(url, ResolveLocation(url, head.Header("location")));
  }
  if (etag.empty() || !IsSafeRelativePath(etag) || etag.find('/') != std::string::npos) {
    return DataLoss(url.Text() + ": the answer has no ETag: check HF_ENDPOINT");
  }
  return FileInfo{etag, ParseSize(size)};
}

Result<FileInfo> HubClient::GetFileInfo(const std::string& commit, const std::string& file) {
  Retry retry(options_);
  while (true) {  // bounded by Retry
    auto info = AskFileInfo(commit, file, &retry);
    if (info.has_value() || !retry.Again(info.error())) return info;
  }
}

Status HubClient::Download(const std::string& commit, const std::string& file, uint64_t offset,
                           const std::function<Status(uint64_t)>& on_start,
                           const std::function<Status(std::string_view)>& on_data, Retry* retry) {
  Url url = FileAddress(commit, file);
  for (int i = 0; i <= kMaxRedirects; ++i) {
    HttpCall call = MakeCall("GET", url);
    if (offset > 0) call.headers.emplace_back("Range", "bytes=" + std::to_string(offset) + "-");
    bool redirected = false;
    call.on_head = [&](const HttpHead& head) -> Status {
      redirected = IsRedirect(head.status);
      if (redirected) return {};
      if (head.status == 206) {
        const auto start = RangeStart(head.Header("content-range"));
        if (start != offset) return DataLoss(url.HostHeader() + ": sent another range than asked");
        return on_start(offset);
      }
      if (head.status == 200) return on_start(0);
      // Nothing there to be had: what is on the disk is no part of this file.
      if (head.status == 416) return DataLoss("the file is shorter than what was downloaded");
      retry->SetRetryAfter(head.Header("retry-after"));
      return tl::unexpected<Error>(StatusError(head, "file '" + file + "'"));
    };
    call.on_data = [&](std::string_view data) -> Status {
      return redirected ? Status{} : on_data(data);
    };
    ASSIGN_OR_RETURN(const HttpHead head, PerformHttp(call, http_options()));
    if (!redirected) return {};
    ASSIGN_OR_RETURN(url, ResolveLocation(url, head.Header("location")));
  }
  return DataLoss(url.HostHeader() + ": too many redirects for '" + file + "'");
}

}  // namespace everstep
