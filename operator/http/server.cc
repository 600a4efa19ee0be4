#include "operator/http/server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "common/log.h"

namespace everstep {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using Routes = std::map<std::string, HttpServer::Handler>;

HttpAnswer Answer(const Routes& routes, const http::request<http::empty_body>& request) {
  const std::string target(request.target());
  const auto route = routes.find(target.substr(0, target.find('?')));
  if (route == routes.end()) return {.status = 404, .body = "no such page\n"};
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    return {.status = 405, .body = "only GET and HEAD\n"};
  }
  return route->second();
}

// Keeps itself alive while something is pending.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, const HttpServer::Options& options, const Routes& routes,
          size_t& connections)
      : stream_(std::move(socket)), options_(options), routes_(routes), connections_(connections) {
    ++connections_;
  }
  ~Session() { --connections_; }

  // Waits for the first byte for as long as an idle connection may live, for the rest of the
  // request much shorter.
  void Await() {
    stream_.expires_after(options_.idle_timeout);
    if (buffer_.size() > 0) return Read();
    stream_.async_read_some(buffer_.prepare(1024),
                            [self = shared_from_this()](auto error, size_t size) {
                              if (error) return;
                              self->buffer_.commit(size);
                              self->Read();
                            });
  }

 private:
  void Read() {
    parser_.emplace();
    parser_->header_limit(HttpServer::kMaxHeaderBytes);
    parser_->body_limit(0);
    stream_.expires_after(options_.request_timeout);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](auto error, size_t) { self->OnRead(error); });
  }

  void OnRead(const boost::system::error_code& error) {
    if (error == http::error::header_limit) return Reply({.status = 431}, true);
    if (error == http::error::body_limit) return Reply({.status = 413}, true);
    if (error == http::error::end_of_stream || error == beast::error::timeout) return;
    if (error) return Reply({.status = 400}, true);
    const auto& request = parser_->get();
    is_head_ = request.method() == http::verb::head;
    Reply(Answer(routes_, request), !request.keep_alive());
  }

  void Reply(const HttpAnswer& answer, bool close) {
    response_ = {};
    response_.result(static_cast<unsigned>(answer.status));
    response_.set(http::field::content_type, answer.content_type);
    response_.set("X-Content-Type-Options", "nosniff");
    response_.keep_alive(!close);
    response_.body() = answer.body;
    response_.prepare_payload();
    // The length of what GET would give, without it.
    if (is_head_) response_.body().clear();
    serializer_.emplace(response_);
    serializer_->split(is_head_);
    const auto done = [self = shared_from_this(), close](auto error, size_t) {
      if (error) return;
      if (!close) return self->Await();
      boost::system::error_code ignored;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    };
    if (is_head_) {
      http::async_write_header(stream_, *serializer_, done);
    } else {
      http::async_write(stream_, *serializer_, done);
    }
  }

  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{HttpServer::kMaxHeaderBytes * 2};
  const HttpServer::Options& options_;
  const Routes& routes_;
  size_t& connections_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  bool is_head_ = false;
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const Options& options, Routes routes)
      : options_(options), routes_(std::move(routes)), acceptor_(io_) {}
  ~Impl() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Status Listen() {
    const std::string where = options_.address + ":" + std::to_string(options_.port);
    boost::system::error_code error;
    const auto address = asio::ip::make_address(options_.address, error);
    if (error) return InvalidArgument(where + ": not an IP address to listen on");
    const tcp::endpoint endpoint(address, options_.port);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (error) return Unavailable(where + ": cannot listen: " + error.message());
    port_ = acceptor_.local_endpoint(error).port();
    Accept();
    thread_ = std::thread([this] { io_.run(); });
    return {};
  }
  uint16_t port() const { return port_; }

 private:
  void Accept() {
    acceptor_.async_accept([this](auto error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error && connections_ < kMaxConnections) {
        std::make_shared<Session>(std::move(socket), options_, routes_, connections_)->Await();
      }
      Accept();
    });
  }

  const Options options_;
  const Routes routes_;
  size_t connections_ = 0;  // outlives io_, whose end destroys the sessions
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  uint16_t port_ = 0;
  std::thread thread_;
};

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const Options& options,
                                                      std::map<std::string, Handler> routes) {
  auto impl = std::make_unique<Impl>(options, std::move(routes));
  RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
uint16_t HttpServer::port() const { return impl_->port(); }

}  // namespace everstep
