// Whom the transport believes to be the API server.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include "common/files.h"
#include "operator/kube/transport_cpprest.h"
#include "tests/support/await.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_certificate.h"

namespace everstep::kube {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;

// Says "{}" to everything, one connection after the other.
class TlsServer {
 public:
  explicit TlsServer(const TestCertificate& certificate, uint16_t port = 0)
      : tls_(asio::ssl::context::tls_server),
        acceptor_(io_, tcp::endpoint(asio::ip::address_v4::loopback(), port)),
        port_(acceptor_.local_endpoint().port()) {
    const auto& pem = certificate.certificate_pem;
    tls_.use_certificate_chain(asio::buffer(pem));
    tls_.use_private_key(asio::buffer(pem), asio::ssl::context::pem);
    thread_ = std::thread([this] { Run(); });
  }
  ~TlsServer() {
    shutdown(acceptor_.native_handle(), SHUT_RDWR);
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      if (served_ >= 0) shutdown(served_, SHUT_RDWR);
    }
    thread_.join();
  }
  uint16_t port() const { return port_; }
  std::string url() const { return "https://127.0.0.1:" + std::to_string(port_); }

 private:
  // False when the server ends.
  bool Serves(int fd) {
    const std::lock_guard lock(mutex_);
    served_ = fd;
    return !ending_;
  }
  void Run() {
    while (true) {
      boost::system::error_code error;
      tcp::socket socket(io_);
      acceptor_.accept(socket, error);
      if (error || !Serves(socket.native_handle())) return;
      asio::ssl::stream<tcp::socket&> stream(socket, tls_);
      stream.handshake(asio::ssl::stream_base::server, error);
      boost::beast::flat_buffer buffer;
      while (!error) {
        http::request<http::string_body> request;
        http::read(stream, buffer, request, error);
        http::response<http::string_body> response;
        response.body() = "{}";
        response.prepare_payload();
        if (!error) http::write(stream, response, error);
      }
      if (!Serves(-1)) return;
    }
  }

  asio::io_context io_;
  asio::ssl::context tls_;
  tcp::acceptor acceptor_;
  const uint16_t port_;
  std::mutex mutex_;
  int served_ = -1;
  bool ending_ = false;
  std::thread thread_;
};

class TransportTlsTest : public testing::Test {
 protected:
  ~TransportTlsTest() override { unsetenv("SSL_CERT_FILE"); }
  std::string Write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(directory_ / name, text).has_value());
    return directory_ / name;
  }
  // As an authority that the machine comes with.
  void MakeSystemTrust(const TestCertificate& certificate) {
    setenv("SSL_CERT_FILE", Write("system.crt", certificate.authority_pem).c_str(), 1);
  }
  std::unique_ptr<Transport> Connect(ClusterAccess access) {
    access.server = server_->url();
    return std::move(*MakeTransport(access, {}, clock_));
  }
  bool Believes(const ClusterAccess& access) {
    return Connect(access)->Send({.path = "/"}).has_value();
  }

  SystemClock clock_;
  TempDir directory_;
  const TestCertificate certificate_ = MakeTestCertificate("127.0.0.1");
  const TestCertificate other_ = MakeTestCertificate("127.0.0.1");
  std::optional<TlsServer> server_{std::in_place, certificate_};
};

TEST_F(TransportTlsTest, AServerOfTheClustersAuthorityIsBelieved) {
  EXPECT_TRUE(Believes({.authority = certificate_.authority_pem}));
  // One of several.
  const std::string another = MakeTestCertificate("elsewhere.example").authority_pem;
  EXPECT_TRUE(Believes({.authority = another + certificate_.authority_pem}));
}

TEST_F(TransportTlsTest, AServerOfAnotherAuthorityIsNot) {
  EXPECT_FALSE(Believes({.authority = other_.authority_pem}));
  EXPECT_FALSE(Believes({}));
  EXPECT_TRUE(Believes({.insecure_skip_verify = true}));
}

TEST_F(TransportTlsTest, TheSystemsAuthoritiesCountOnlyWhereTheClusterNamesNone) {
  MakeSystemTrust(certificate_);
  EXPECT_TRUE(Believes({}));
  EXPECT_FALSE(Believes({.authority = other_.authority_pem}));
  EXPECT_FALSE(Believes({.authority_file = directory_ / "missing.crt"}));
}

TEST_F(TransportTlsTest, ACertificateOfAnotherHostIsRefused) {
  const TestCertificate elsewhere = MakeTestCertificate("elsewhere.example");
  server_.emplace(elsewhere);
  EXPECT_FALSE(Believes({.authority = elsewhere.authority_pem}));
}

TEST_F(TransportTlsTest, AnAuthorityThatIsReplacedIsFollowed) {
  const auto transport = Connect({.authority_file = Write("ca.crt", certificate_.authority_pem)});
  const auto answers = [&] { return transport->Send({.path = "/"}).has_value(); };
  EXPECT_TRUE(answers());
  const uint16_t port = server_->port();
  server_.reset();
  server_.emplace(other_, port);
  EXPECT_FALSE(answers());
  Write("ca.crt", other_.authority_pem);
  EXPECT_TRUE(AwaitTrue(answers));
}

TEST_F(TransportTlsTest, AnAddressThatTheLibraryCannotTakeIsRefusedAtOnce) {
  const auto transport = MakeTransport({.server = "https://[::1]:6443"}, {}, clock_);
  ASSERT_FALSE(transport.has_value());
  EXPECT_EQ(transport.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace everstep::kube
