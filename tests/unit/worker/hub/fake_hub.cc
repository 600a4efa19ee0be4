#include "tests/unit/worker/hub/fake_hub.h"

#include <openssl/evp.h>

#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "common/json.h"

namespace everstep {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

std::string HexDigest(const EVP_MD* algorithm, const std::string& data) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(data.data(), data.size(), digest, &size, algorithm, nullptr);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    char text[3];
    std::snprintf(text, sizeof(text), "%02x", digest[i]);
    hex += text;
  }
  return hex;
}

}  // namespace

struct FakeHub::Answer {
  int status = 200;
  std::map<std::string, std::string> headers;
  std::string body;
  bool drop_midway = false;
};

FakeHub::FakeHub(const std::string& certificate_pem)
    : acceptor_(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {
  if (!certificate_pem.empty()) {
    tls_ = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
    const asio::const_buffer pem = asio::buffer(certificate_pem);
    tls_->use_certificate_chain(pem);
    tls_->use_private_key(pem, asio::ssl::context::pem);
  }
  accepting_ = std::thread([this] { Accept(); });
}

FakeHub::~FakeHub() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  // A last connection wakes the thread that accepts them.
  beast::error_code ignored;
  tcp::socket(io_).connect(acceptor_.local_endpoint(), ignored);
  accepting_.join();
  for (std::thread& connection : connections_) connection.join();
}

std::string FakeHub::url() const {
  return std::string(tls_ ? "https" : "http") +
         "://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
}

void FakeHub::AddFile(const std::string& name, const std::string& content, bool large) {
  std::string prefix = "blob " + std::to_string(content.size());
  prefix.push_back('\0');
  const std::lock_guard lock(mutex_);
  files_[name] = {
      content, large ? HexDigest(EVP_sha256(), content) : HexDigest(EVP_sha1(), prefix + content),
      large};
}

void FakeHub::Misbehave(const std::string& method, const std::string& part, Fault fault,
                        int times) {
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < times; ++i) faults_.push_back({method, part, fault});
}

std::vector<RecordedRequest> FakeHub::requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

int FakeHub::CountRequests(const std::string& method, const std::string& part) {
  int count = 0;
  for (const RecordedRequest& request : requests()) {
    if (request.method == method && request.target.find(part) != std::string::npos) ++count;
  }
  return count;
}

void FakeHub::Accept() {
  while (true) {
    beast::error_code error;
    tcp::socket socket(io_);
    acceptor_.accept(socket, error);
    const std::lock_guard lock(mutex_);
    if (stopping_ || error) return;
    connections_.emplace_back(
        [this, moved = std::move(socket)]() mutable { Serve(std::move(moved)); });
  }
}

void FakeHub::Serve(tcp::socket socket) {
  if (!tls_) {
    Talk(&socket);
    return;
  }
  asio::ssl::stream<tcp::socket> stream(std::move(socket), *tls_);
  beast::error_code error;
  stream.handshake(asio::ssl::stream_base::server, error);
  if (!error) Talk(&stream);
}

template <typename Stream>
void FakeHub::Talk(Stream* stream) {
  beast::error_code error;
  beast::flat_buffer buffer;
  http::request<http::empty_body> request;
  http::read(*stream, buffer, request, error);
  if (error) return;
  const RecordedRequest recorded{
      std::string(request.method_string()), std::string(request.target()),
      std::string(request[http::field::authorization]), std::string(request[http::field::range])};
  const Answer answer = AnswerFor(recorded);
  http::response<http::empty_body> head(static_cast<http::status>(answer.status), 11);
  for (const auto& [name, value] : answer.headers) head.set(name, value);
  if (head.find(http::field::content_length) == head.end()) {
    head.content_length(answer.body.size());
  }
  head.keep_alive(false);
  http::response_serializer<http::empty_body> serializer(head);
  http::write_header(*stream, serializer, error);
  if (error || recorded.method == "HEAD") return;
  const size_t bytes = answer.drop_midway ? answer.body.size() / 2 : answer.body.size();
  asio::write(*stream, asio::buffer(answer.body.data(), bytes), error);
}

bool FakeHub::TakeFault(const RecordedRequest& request, Fault* fault) {
  for (auto it = faults_.begin(); it != faults_.end(); ++it) {
    if (it->method != request.method) continue;
    if (request.target.find(it->part) == std::string::npos) continue;
    *fault = it->fault;
    faults_.erase(it);
    return true;
  }
  return false;
}

FakeHub::Answer FakeHub::AnswerFor(const RecordedRequest& request) {
  const std::lock_guard lock(mutex_);
  requests_.push_back(request);
  const std::string api = std::string("/api/models/") + kTinyModel + "/revision/";
  const std::string resolve = std::string("/") + kTinyModel + "/resolve/" + kTinyCommit + "/";
  const std::string moved = "/api/resolve-cache/";
  const std::string blob = "/blob/";
  Fault fault{};
  const bool faulty = TakeFault(request, &fault);
  if (faulty && fault == Fault::kStatus503) return {503, {}, "busy"};
  if (faulty && fault == Fault::kStatus429) return {429, {{"Retry-After", "7"}}, "slow down"};
  if (faulty && fault == Fault::kGated) return {403, {{"X-Error-Code", "GatedRepo"}}, ""};
  if (faulty && fault == Fault::kTokenRefused) return {403, {}, ""};
  Answer answer;
  if (request.target.starts_with(api)) {
    answer = ModelInfo(request.target.substr(api.size()));
  } else if (request.target.starts_with(resolve)) {
    const std::string name = request.target.substr(resolve.size());
    if (faulty && fault == Fault::kRedirectToApi) return {307, {{"Location", moved + name}}, ""};
    answer = FileAnswer(request, name);
  } else if (request.target.starts_with(moved)) {
    answer = FileAnswer(request, request.target.substr(moved.size()));
  } else if (request.target.starts_with(blob)) {
    const std::string name = request.target.substr(blob.size());
    answer = Content(files_[name], request.range, faulty && fault == Fault::kIgnoreRange);
  } else {
    return {401, {{"X-Error-Code", "RepoNotFound"}}, ""};
  }
  answer.drop_midway = faulty && fault == Fault::kDropMidway;
  if (faulty && fault == Fault::kWrongBytes) answer.body.assign(answer.body.size(), '?');
  return answer;
}

FakeHub::Answer FakeHub::ModelInfo(const std::string& revision) {
  if (revision != "main" && revision != kTinyCommit) {
    return {404, {{"X-Error-Code", "RevisionNotFound"}}, ""};
  }
  Json info{{"id", kTinyModel}, {"sha", kTinyCommit}, {"siblings", Json::array()}};
  for (const auto& [name, file] : files_) info["siblings"].push_back({{"rfilename", name}});
  return {200, {{"Content-Type", "application/json"}}, DumpJson(info)};
}

FakeHub::Answer FakeHub::FileAnswer(const RecordedRequest& request, const std::string& name) {
  const auto it = files_.find(name);
  if (it == files_.end()) return {404, {{"X-Error-Code", "EntryNotFound"}}, ""};
  const File& file = it->second;
  if (file.large) {
    return {302,
            {{"Location", cdn_->url() + "/blob/" + name},
             {"X-Repo-Commit", kTinyCommit},
             {"ETag", "\"of the redirect\""},
             {"X-Linked-ETag", "\"" + file.etag + "\""},
             {"X-Linked-Size", std::to_string(file.content.size())}},
            ""};
  }
  Answer answer = Content(file, request.range, false);
  answer.headers["X-Repo-Commit"] = kTinyCommit;
  answer.headers["ETag"] = "\"" + file.etag + "\"";
  if (request.method == "HEAD") {
    answer.headers["Content-Length"] = std::to_string(file.content.size());
  }
  return answer;
}

FakeHub::Answer FakeHub::Content(const File& file, const std::string& range, bool ignore_range) {
  constexpr size_t kPrefix = std::string_view("bytes=").size();
  if (range.empty() || ignore_range) return {200, {}, file.content};
  const size_t start = std::stoul(range.substr(kPrefix));
  const size_t size = file.content.size();
  if (start >= size) return {416, {}, ""};
  return {206,
          {{"Content-Range", "bytes " + std::to_string(start) + "-" + std::to_string(size - 1) +
                                 "/" + std::to_string(size)}},
          file.content.substr(start)};
}

}  // namespace everstep
