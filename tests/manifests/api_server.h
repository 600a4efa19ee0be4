// A real API server on loopback, with etcd behind it and nothing else: no nodes, no controllers. It
// checks and stores objects, which takes a second to start and no root.
#ifndef EVERSTEP_TESTS_MANIFESTS_API_SERVER_H_
#define EVERSTEP_TESTS_MANIFESTS_API_SERVER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/cluster/test_cluster.h"
#include "tests/support/temp_dir.h"

namespace everstep {

class ApiServer {
 public:
  // "" or what is missing on this machine.
  static std::string Missing();

  // Started, and ready unless ready() says otherwise.
  ApiServer();
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  bool ready() const { return ready_; }
  const std::string& url() const { return server_; }
  // A file of the server's directory, which goes with it.
  std::string File(const std::string& name) const { return dir_ / name; }

  // Another program beside it: it ends with the server. The first word is its path.
  void Start(const std::string& name, std::vector<std::string> command);
  // The last lines of all logs.
  std::string Logs() const;

  // As the administrator.
  testing::CommandResult Helm(std::vector<std::string> arguments) const;
  testing::CommandResult Kubectl(std::vector<std::string> arguments,
                                 const std::string& input = "") const;

 private:
  bool AwaitReady();

  TempDir dir_;
  std::vector<pid_t> processes_;
  std::vector<std::string> names_;
  std::string server_;
  bool ready_ = false;
};

}  // namespace everstep

#endif  // EVERSTEP_TESTS_MANIFESTS_API_SERVER_H_
