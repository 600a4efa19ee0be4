// A hub of the tests' own, on a loopback port: the API that a download needs, and a list of ways
// to misbehave. It holds one model, org/tiny.
#ifndef EVERSTEP_TESTS_UNIT_WORKER_HUB_FAKE_HUB_H_
#define EVERSTEP_TESTS_UNIT_WORKER_HUB_FAKE_HUB_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace everstep {

inline constexpr char kTinyModel[] = "org/tiny";
inline constexpr char kTinyCommit[] = "0123456789abcdef0123456789abcdef01234567";

enum class Fault {
  kDropMidway,     // closes the connection after half of the body
  kWrongBytes,     // as many bytes as there should be, but others
  kStatus503,      // "503 Service Unavailable"
  kStatus429,      // "429 Too Many Requests", Retry-After: 7
  kIgnoreRange,    // answers a range with the whole file
  kGated,          // 403, GatedRepo
  kTokenRefused,   // 403 without a reason
  kRedirectToApi,  // a relative redirect, as the hub does for small files
};

struct RecordedRequest {
  std::string method;
  std::string target;
  std::string authorization;
  std::string range;
};

class FakeHub {
 public:
  // With `certificate_pem` (certificate and key in one text) it speaks TLS.
  explicit FakeHub(const std::string& certificate_pem = "");
  ~FakeHub();

  std::string url() const;
  // A large file is described here and, as on the hub, fetched through a redirect to `cdn` (this
  // hub itself when there is none).
  void AddFile(const std::string& name, const std::string& content, bool large = false);
  void SetCdn(FakeHub* cdn) { cdn_ = cdn; }
  // The next request whose method is `method` and whose target contains `part` fails so.
  void Misbehave(const std::string& method, const std::string& part, Fault fault, int times = 1);

  std::vector<RecordedRequest> requests();
  // How many of them have this method and a target that contains `part`.
  int CountRequests(const std::string& method, const std::string& part);

 private:
  struct File {
    std::string content;
    std::string etag;
    bool large = false;
  };
  struct PlannedFault {
    std::string method;
    std::string part;
    Fault fault;
  };
  struct Answer;

  void Accept();
  void Serve(boost::asio::ip::tcp::socket socket);
  template <typename Stream>
  void Talk(Stream* stream);
  Answer AnswerFor(const RecordedRequest& request);
  Answer ModelInfo(const std::string& revision);
  Answer FileAnswer(const RecordedRequest& request, const std::string& name);
  Answer Content(const File& file, const std::string& range, bool ignore_range);
  // Takes the planned fault of this request, if there is one.
  bool TakeFault(const RecordedRequest& request, Fault* fault);

  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::unique_ptr<boost::asio::ssl::context> tls_;
  FakeHub* cdn_ = this;
  std::mutex mutex_;
  std::map<std::string, File> files_;
  std::vector<PlannedFault> faults_;
  std::vector<RecordedRequest> requests_;
  std::vector<std::thread> connections_;
  bool stopping_ = false;
  std::thread accepting_;
};

}  // namespace everstep

#endif  // EVERSTEP_TESTS_UNIT_WORKER_HUB_FAKE_HUB_H_
