// Raw sockets against the server: what it answers, and whom it drops.
#include "operator/http/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <utility>
#include <vector>

namespace everstep {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class Client {
 public:
  explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Send(const std::string& text) { (void)send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // All until the server closes.
  std::string ReadAll() {
    std::string text;
    char bytes[4096];
    while (true) {
      const ssize_t size = recv(fd_, bytes, sizeof(bytes), 0);
      if (size <= 0) return text;
      text.append(bytes, static_cast<size_t>(size));
    }
  }

 private:
  const int fd_;
};

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() { Start({}); }
  void Start(HttpServer::Options options) {
    server_.reset();
    options.address = "127.0.0.1";
    auto server = HttpServer::Start(
        options, {{"/yes", [] { return HttpAnswer{.body = "fine\n"}; }},
                  {"/no", [] { return HttpAnswer{.status = 503, .body = "not yet\n"}; }}});
    ASSERT_TRUE(server.has_value()) << server.error().message;
    server_ = std::move(*server);
  }
  std::string Ask(const std::string& text) {
    Client client(server_->port());
    client.Send(text);
    return client.ReadAll();
  }
  std::string Get(const std::string& path, const std::string& method = "GET") {
    return Ask(method + " " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, PagesAndTheirStatus) {
  EXPECT_THAT(Get("/yes"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Get("/yes"), HasSubstr("\r\n\r\nfine\n"));
  EXPECT_THAT(Get("/yes?verbose"), HasSubstr("fine"));
  EXPECT_THAT(Get("/no"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(Get("/other"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get("/yes", "POST"), StartsWith("HTTP/1.1 405 "));
}

TEST_F(HttpServerTest, HeadHasTheLengthAndNoBody) {
  const std::string answer = Get("/yes", "HEAD");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(HttpServerTest, SeveralRequestsOnOneConnectionAlsoAtOnce) {
  const std::string one = "GET /yes HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string last = "GET /no HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  const std::string answers = Ask(one + one + last);
  size_t fine = 0;
  for (size_t at = answers.find("fine"); at != answers.npos; at = answers.find("fine", at + 1)) {
    ++fine;
  }
  EXPECT_EQ(fine, 2u);
  EXPECT_THAT(answers, HasSubstr("not yet"));
}

TEST_F(HttpServerTest, WhatIsNoRequestIsRefused) {
  EXPECT_THAT(Ask("hello\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("GET /yes HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Ask("POST /yes HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"),
              StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, ASlowClientLosesItsConnectionAndNobodyElse) {
  Start({.request_timeout = std::chrono::milliseconds(50)});
  Client slow(server_->port());
  slow.Send("GET /yes HT");
  EXPECT_THAT(Get("/yes"), HasSubstr("fine"));
  EXPECT_EQ(slow.ReadAll(), "");
}

TEST_F(HttpServerTest, AnIdleConnectionIsClosed) {
  Start({.idle_timeout = std::chrono::milliseconds(50)});
  Client idle(server_->port());
  EXPECT_EQ(idle.ReadAll(), "");
}

TEST_F(HttpServerTest, TooManyConnectionsAreTurnedAwayUntilOthersEnd) {
  {
    std::vector<std::unique_ptr<Client>> clients;
    for (size_t i = 0; i < HttpServer::kMaxConnections; ++i) {
      clients.push_back(std::make_unique<Client>(server_->port()));
    }
    Client last(server_->port());
    EXPECT_EQ(last.ReadAll(), "");
  }
  // The ends of the others may be seen a moment later.
  for (int i = 0; i < 1000 && Get("/yes").empty(); ++i) {
  }
  EXPECT_THAT(Get("/yes"), HasSubstr("fine"));
}

TEST_F(HttpServerTest, APortInUseIsAnError) {
  const auto second = HttpServer::Start({.address = "127.0.0.1", .port = server_->port()}, {});
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message, HasSubstr("cannot listen"));
}

}  // namespace
}  // namespace everstep
