#include "worker/hub/http_client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <cctype>
#include <limits>
#include <optional>
#include <vector>

namespace everstep {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr size_t kChunkBytes = 256 << 10;
constexpr uint32_t kMaxHeadBytes = 64 << 10;

// Asio's deadlines work on asynchronous operations only; this runs one of them to its end.
class Runner {
 public:
  template <typename Start>
  error_code operator()(Start start) {
    std::optional<error_code> result;
    start([&result](error_code error, auto&&...) { result = error; });
    io_.restart();
    io_.run();
    return *result;
  }
  asio::io_context& io() { return io_; }

 private:
  asio::io_context io_{1};
};

std::string ErrorText(error_code error) {
  if (error == beast::error::timeout) return "no answer in time";
  if (error == http::error::partial_message || error == http::error::end_of_stream ||
      error == asio::ssl::error::stream_truncated || error == asio::error::eof) {
    return "the connection was closed midway";
  }
  return error.message();
}

tl::unexpected<Error> NetworkError(const Url& url, error_code error) {
  return Unavailable(url.HostHeader() + ": " + ErrorText(error));
}

Status Connect(const Url& url, const HttpOptions& options, Runner* run, beast::tcp_stream* stream) {
  tcp::resolver resolver(run->io());
  tcp::resolver::results_type addresses;
  error_code error = (*run)([&](auto handler) {
    resolver.async_resolve(url.host, url.port,
                           [&addresses, handler](error_code e, tcp::resolver::results_type found) {
                             addresses = std::move(found);
                             handler(e);
                           });
  });
  if (error) return NetworkError(url, error);
  stream->expires_after(options.connect_timeout);
  error = (*run)([&](auto handler) { stream->async_connect(addresses, handler); });
  if (error) return NetworkError(url, error);
  return {};
}

http::request<http::empty_body> MakeRequest(const HttpCall& call) {
  const http::verb verb = call.method == "HEAD" ? http::verb::head : http::verb::get;
  http::request<http::empty_body> request(verb, call.url.target, 11);
  request.set(http::field::host, call.url.HostHeader());
  request.set(http::field::user_agent, "everstep");
  // Lengths and ranges are those of the file itself.
  request.set(http::field::accept_encoding, "identity");
  request.keep_alive(false);
  for (const auto& [name, value] : call.headers) request.set(name, value);
  return request;
}

template <typename Message>
HttpHead HeadOf(const Message& message) {
  HttpHead head;
  head.status = static_cast<int>(message.result_int());
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    head.headers.emplace(std::move(name), std::string(field.value()));
  }
  return head;
}

// Sends the request and reads the response over a connected stream.
template <typename Stream>
Result<HttpHead> Exchange(const HttpCall& call, const HttpOptions& options, Runner* run,
                          Stream* stream) {
  auto& lowest = beast::get_lowest_layer(*stream);
  lowest.expires_after(options.silence_timeout);
  const http::request<http::empty_body> request = MakeRequest(call);
  error_code error = (*run)([&](auto handler) { http::async_write(*stream, request, handler); });
  if (error) return NetworkError(call.url, error);

  beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  // No limit of Beast's own: callers bound what they take. (boost::none refuses every body
  // in 1.74.)
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  parser.header_limit(kMaxHeadBytes);
  if (call.method == "HEAD") parser.skip(true);
  lowest.expires_after(options.silence_timeout);
  error = (*run)([&](auto handler) { http::async_read_header(*stream, buffer, parser, handler); });
  if (error) return NetworkError(call.url, error);
  HttpHead head = HeadOf(parser.get());
  if (call.on_head) RETURN_IF_ERROR(call.on_head(head));
  if (!call.on_data || call.method == "HEAD") return head;

  std::vector<char> chunk(kChunkBytes);
  while (!parser.is_done()) {
    auto& body = parser.get().body();
    body.data = chunk.data();
    body.size = chunk.size();
    body.more = true;
    lowest.expires_after(options.silence_timeout);
    error = (*run)([&](auto handler) { http::async_read(*stream, buffer, parser, handler); });
    if (error == http::error::need_buffer) error = {};
    const size_t received = chunk.size() - body.size;
    if (received > 0) RETURN_IF_ERROR(call.on_data(std::string_view(chunk.data(), received)));
    if (error) return NetworkError(call.url, error);
  }
  return head;
}

Result<HttpHead> PerformPlain(const HttpCall& call, const HttpOptions& options) {
  Runner run;
  beast::tcp_stream stream(run.io());
  RETURN_IF_ERROR(Connect(call.url, options, &run, &stream));
  return Exchange(call, options, &run, &stream);
}

bool IsIpAddress(const std::string& host) {
  error_code error;
  asio::ip::make_address(host, error);
  return !error;
}

Result<HttpHead> PerformTls(const HttpCall& call, const HttpOptions& options) {
  const Url& url = call.url;
  asio::ssl::context context(asio::ssl::context::tls_client);
  error_code error;
  context.set_default_verify_paths(error);
  context.set_verify_mode(asio::ssl::verify_peer);
  Runner run;
  beast::ssl_stream<beast::tcp_stream> stream(run.io(), context);
  stream.set_verify_callback(asio::ssl::host_name_verification(url.host), error);
  // The name goes along in the clear, since one address serves many names.
  if (!IsIpAddress(url.host)) SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str());
  RETURN_IF_ERROR(Connect(url, options, &run, &beast::get_lowest_layer(stream)));
  beast::get_lowest_layer(stream).expires_after(options.connect_timeout);
  error =
      run([&](auto handler) { stream.async_handshake(asio::ssl::stream_base::client, handler); });
  const long verified = SSL_get_verify_result(stream.native_handle());
  if (error && verified != X509_V_OK) {
    return MakeError(ErrorCode::kFailedPrecondition,
                     url.HostHeader() + ": its certificate is not trusted (" +
                         X509_verify_cert_error_string(verified) +
                         "): install ca-certificates, or name its authority in SSL_CERT_FILE");
  }
  if (error) return NetworkError(url, error);
  return Exchange(call, options, &run, &stream);
}

}  // namespace

std::string HttpHead::Header(const std::string& lower_case_name) const {
  const auto it = headers.find(lower_case_name);
  return it == headers.end() ? "" : it->second;
}

Result<HttpHead> PerformHttp(const HttpCall& call, const HttpOptions& options) {
  return call.url.tls ? PerformTls(call, options) : PerformPlain(call, options);
}

Result<HttpText> GetText(HttpCall call, size_t max_bytes, const HttpOptions& options) {
  HttpText text;
  call.on_data = [&](std::string_view data) -> Status {
    if (text.body.size() + data.size() > max_bytes) {
      return DataLoss(call.url.Text() + ": the answer is too large");
    }
    text.body.append(data);
    return {};
  };
  ASSIGN_OR_RETURN(text.head, PerformHttp(call, options));
  return text;
}

}  // namespace everstep
