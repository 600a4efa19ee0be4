// cpprestsdk is a client for simple calls that starts threads of its own, keeps connections and
// throws. What it does not do well is dealt with here: few threads, bounded requests, a new client
// after errors in a row (a pooled connection may be dead or hold an old authority), and no
// exception leaves this file.
#include "operator/kube/transport_cpprest.h"

#include <cpprest/http_client.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <pplx/threadpool.h>

#include <atomic>
#include <cctype>
#include <charconv>
#include <mutex>
#include <semaphore>
#include <utility>

#include "common/files.h"
#include "common/log.h"

namespace everstep::kube {
namespace {

namespace http = web::http;
namespace ssl = boost::asio::ssl;

constexpr size_t kLibraryThreads = 3;
constexpr int kErrorsUntilNewClient = 3;
constexpr int kMaxRequestsAtATime = 1024;

// The library would start forty.
void LimitThreads() {
  static std::once_flag once;
  std::call_once(once, [] { crossplat::threadpool::initialize_with_threads(kLibraryThreads); });
}

Result<std::string> TextOrFile(const std::string& text, const std::string& file) {
  if (!text.empty() || file.empty()) return text;
  return ReadFile(file);
}

// Them alone: the library has put the system's there, any of which could vouch for a false server.
// A bundle may hold several certificates.
void TrustOnly(ssl::context& context, const std::string& pem) {
  SSL_CTX_set_cert_store(context.native_handle(), X509_STORE_new());
  const std::unique_ptr<BIO, int (*)(BIO*)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  X509_STORE* store = SSL_CTX_get_cert_store(context.native_handle());
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    X509_STORE_add_cert(store, certificate);
    X509_free(certificate);
  }
  ERR_clear_error();
}

void ConfigureTls(const ClusterAccess& access, ssl::context& context) {
  context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                      ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
  const auto authority = TextOrFile(access.authority, access.authority_file);
  const auto certificate = TextOrFile(access.client_certificate, access.client_certificate_file);
  const auto key = TextOrFile(access.client_key, access.client_key_file);
  for (const auto* part : {&authority, &certificate, &key}) {
    if (!*part) LogWarning(part->error().message);
  }
  boost::system::error_code error;
  // One that cannot be read is trusted by nobody.
  if (!authority || !authority->empty()) TrustOnly(context, authority.value_or(""));
  if (certificate && !certificate->empty() && key && !key->empty()) {
    context.use_certificate_chain({certificate->data(), certificate->size()}, error);
    if (!error) context.use_private_key({key->data(), key->size()}, ssl::context::pem, error);
  }
  if (error) LogWarning("client certificate: " + error.message());
}

// An address has no name to be asked for.
bool IsAddress(const std::string& host) {
  return host.find(':') != std::string::npos ||
         host.find_first_not_of("0123456789.") == std::string::npos;
}

std::optional<Duration> RetryAfter(const http::http_response& response) {
  const auto header = response.headers().find("Retry-After");
  if (header == response.headers().end()) return std::nullopt;
  int seconds = 0;
  const std::string& text = header->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || seconds < 0) return std::nullopt;
  return std::chrono::seconds(seconds);
}

// The library's texts do not tell a timeout from a broken connection; the time does.
Error TransportError(const std::exception& error, TimePoint since, Duration timeout) {
  if (std::chrono::steady_clock::now() - since < timeout) {
    return {ErrorCode::kUnavailable, std::string("API server: ") + error.what()};
  }
  return {
      ErrorCode::kDeadlineExceeded,
      "API server: no answer in " + std::to_string(Seconds(timeout)) + " s (" + error.what() + ")"};
}

class CpprestStream final : public LineStream {
 public:
  CpprestStream(std::shared_ptr<http::client::http_client> client, http::http_response response,
                pplx::cancellation_token_source cancel)
      : client_(std::move(client)), response_(std::move(response)), cancel_(std::move(cancel)) {}
  ~CpprestStream() override { Cancel(); }

  Result<std::string> ReadLine() override {
    try {
      concurrency::streams::stringstreambuf line;
      const size_t size = response_.body().read_line(line).get();
      if (size == 0 && response_.body().is_eof()) {
        // The end of the answer, or an error that ended it: either way it has to be asked again.
        response_.content_ready().get();
        return Unavailable("the stream has ended");
      }
      return std::move(line.collection());
    } catch (const std::exception& error) {
      if (cancelled_) return MakeError(ErrorCode::kAborted, "cancelled");
      return Unavailable(std::string("API server: ") + error.what());
    }
  }
  void Cancel() override {
    if (!cancelled_.exchange(true)) cancel_.cancel();
  }

 private:
  const std::shared_ptr<http::client::http_client> client_;  // lives as long as its requests
  http::http_response response_;
  pplx::cancellation_token_source cancel_;
  std::atomic<bool> cancelled_ = false;
};

class CpprestTransport final : public Transport {
 public:
  CpprestTransport(ClusterAccess access, TransportOptions options, const Clock& clock)
      : access_(std::move(access)),
        options_(std::move(options)),
        token_(access_, clock),
        slots_(options_.max_requests) {}

  Result<HttpResponse> Send(const HttpRequest& request) override {
    slots_.acquire();
    auto response = SendOnce(request);
    if (response && response->status == 401 && !access_.token_file.empty()) {
      token_.Drop();
      response = SendOnce(request);
    }
    slots_.release();
    return response;
  }

  Result<OpenedStream> Open(const std::string& path, const std::stop_token& stop) override {
    auto opened = OpenOnce(path, stop);
    if (opened && opened->response.status == 401 && !access_.token_file.empty()) {
      token_.Drop();
      opened = OpenOnce(path, stop);
    }
    return opened;
  }

 private:
  // Clients for calls and for streams differ in how long silence is borne.
  struct Pool {
    std::shared_ptr<http::client::http_client> client;
    int errors_in_a_row = 0;
  };

  std::shared_ptr<http::client::http_client> Client(Pool& pool, Duration timeout) {
    const std::lock_guard lock(mutex_);
    if (pool.client) return pool.client;
    const web::uri server(access_.server);
    http::client::http_client_config config;
    config.set_timeout(std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
    config.set_validate_certificates(!access_.insecure_skip_verify);
    config.set_tlsext_sni_enabled(!IsAddress(server.host()));
    config.set_ssl_context_callback(
        [access = access_](ssl::context& context) { ConfigureTls(access, context); });
    pool.client = std::make_shared<http::client::http_client>(server, config);
    return pool.client;
  }

  void Note(Pool& pool, bool answered) {
    const std::lock_guard lock(mutex_);
    pool.errors_in_a_row = answered ? 0 : pool.errors_in_a_row + 1;
    if (pool.errors_in_a_row < kErrorsUntilNewClient) return;
    pool.client.reset();
    pool.errors_in_a_row = 0;
  }

  Result<http::http_request> Prepare(const HttpRequest& request) {
    ASSIGN_OR_RETURN(const std::string token, token_.Get());
    http::http_request prepared(request.method);
    prepared.set_request_uri(web::uri(request.path));
    prepared.headers().add("User-Agent", options_.user_agent);
    prepared.headers().add("Accept", "application/json");
    if (!token.empty()) prepared.headers().add("Authorization", "Bearer " + token);
    if (!request.body.empty()) prepared.set_body(request.body, request.content_type);
    return prepared;
  }

  Result<HttpResponse> SendOnce(const HttpRequest& request) {
    const TimePoint since = std::chrono::steady_clock::now();
    try {
      ASSIGN_OR_RETURN(http::http_request prepared, Prepare(request));
      const auto client = Client(calls_, options_.request_timeout);
      http::http_response response = client->request(prepared).get();
      HttpResponse answer{.status = response.status_code(),
                          .body = response.extract_utf8string(true).get(),
                          .retry_after = RetryAfter(response)};
      Note(calls_, true);
      return answer;
    } catch (const std::exception& error) {
      Note(calls_, false);
      return tl::unexpected(TransportError(error, since, options_.request_timeout));
    }
  }

  Result<OpenedStream> OpenOnce(const std::string& path, const std::stop_token& stop) {
    const TimePoint since = std::chrono::steady_clock::now();
    try {
      ASSIGN_OR_RETURN(http::http_request prepared, Prepare({.path = path}));
      const auto client = Client(streams_, options_.silence);
      pplx::cancellation_token_source cancel;
      const std::stop_callback on_stop(stop, [&] { cancel.cancel(); });
      http::http_response response = client->request(prepared, cancel.get_token()).get();
      OpenedStream opened;
      opened.response = {
          .status = response.status_code(), .body = "", .retry_after = RetryAfter(response)};
      if (response.status_code() == http::status_codes::OK) {
        opened.stream =
            std::make_unique<CpprestStream>(client, std::move(response), std::move(cancel));
      } else {
        opened.response.body = response.extract_utf8string(true).get();
      }
      Note(streams_, true);
      return opened;
    } catch (const std::exception& error) {
      if (stop.stop_requested()) return MakeError(ErrorCode::kAborted, "cancelled");
      Note(streams_, false);
      return tl::unexpected(TransportError(error, since, options_.silence));
    }
  }

  const ClusterAccess access_;
  const TransportOptions options_;
  TokenSource token_;
  std::counting_semaphore<kMaxRequestsAtATime> slots_;
  std::mutex mutex_;
  Pool calls_, streams_;
};

}  // namespace

Result<std::unique_ptr<Transport>> MakeTransport(const ClusterAccess& access,
                                                 const TransportOptions& options,
                                                 const Clock& clock) {
  LimitThreads();
  if (!web::uri::validate(access.server) || web::uri(access.server).host().empty()) {
    return InvalidArgument("server: is not a URL: " + access.server);
  }
  // The library would look the brackets up as part of a name.
  if (web::uri(access.server).host().find(':') != std::string::npos) {
    return InvalidArgument("server: an IPv6 address cannot be used, give its name: " +
                           access.server);
  }
  return std::make_unique<CpprestTransport>(access, options, clock);
}

}  // namespace everstep::kube
