#include "tests/manifests/api_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/files.h"
#include "tests/support/await.h"
#include "tests/support/paths.h"

namespace everstep {
namespace {

constexpr char kToken[] = "administrator";

std::string Program(const std::string& name) { return CacheDir() + "/kubernetes-1.34.4/" + name; }

// Ports that nobody listens on now; the servers cannot be asked which one they took. All are bound
// at once, so that they differ.
std::vector<std::string> FreePorts(int count) {
  std::vector<std::string> ports;
  std::vector<int> sockets;
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd, generic, size), 0);
    EXPECT_EQ(getsockname(fd, generic, &size), 0);
    ports.push_back(std::to_string(ntohs(address.sin_port)));
    sockets.push_back(fd);
  }
  for (const int fd : sockets) close(fd);
  return ports;
}

}  // namespace

std::string ApiServer::Missing() {
  for (const char* name : {"etcd", "kube-apiserver", "kubectl", "helm"}) {
    if (!std::filesystem::exists(Program(name))) {
      return Program(name) + " is not there: run make cluster-tools";
    }
  }
  return "";
}

ApiServer::ApiServer() {
  const auto ports = FreePorts(3);
  const std::string etcd = "http://127.0.0.1:" + ports[0], peers = "http://127.0.0.1:" + ports[1];
  server_ = "https://127.0.0.1:" + ports[2];
  const auto key = testing::RunCommand({"openssl", "ecparam", "-name", "prime256v1", "-genkey",
                                        "-noout", "-out", dir_ / "accounts.key"});
  EXPECT_TRUE(key.ok()) << key.Text();
  std::ofstream(dir_ / "tokens") << kToken << ",administrator,1,\"system:masters\"\n";
  Start("etcd", {Program("etcd"), "--data-dir=" + (dir_ / "etcd"), "--listen-client-urls=" + etcd,
                 "--advertise-client-urls=" + etcd, "--listen-peer-urls=" + peers,
                 "--initial-advertise-peer-urls=" + peers, "--initial-cluster=default=" + peers,
                 "--unsafe-no-fsync"});
  Start("kube-apiserver",
        {Program("kube-apiserver"), "--etcd-servers=" + etcd, "--bind-address=127.0.0.1",
         "--secure-port=" + ports[2], "--cert-dir=" + (dir_ / "certificates"),
         "--token-auth-file=" + (dir_ / "tokens"), "--authorization-mode=RBAC",
         "--service-account-key-file=" + (dir_ / "accounts.key"),
         "--service-account-signing-key-file=" + (dir_ / "accounts.key"),
         "--service-account-issuer=https://kubernetes.default", "--endpoint-reconciler-type=none",
         "--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.0.0.0/24"});
  ready_ = AwaitReady();
}

ApiServer::~ApiServer() {
  // The newest first: the API server lets go of etcd.
  std::ranges::reverse(processes_);
  for (const pid_t process : processes_) {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
}

void ApiServer::Start(const std::string& name, std::vector<std::string> command) {
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string log = dir_ / (name + ".log");
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (getppid() != parent || fd < 0) _exit(1);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  processes_.push_back(process);
  names_.push_back(name);
}

bool ApiServer::AwaitReady() {
  return AwaitTrue([&] {
           const bool ended = std::ranges::any_of(
               processes_, [](pid_t process) { return waitpid(process, nullptr, WNOHANG) != 0; });
           return ended || Kubectl({"get", "--raw=/readyz"}).output == "ok";
         }) &&
         Kubectl({"get", "--raw=/readyz"}).ok();
}

std::string ApiServer::Logs() const {
  std::string logs;
  for (const std::string& name : names_) {
    const std::string log = ReadFile(dir_ / (name + ".log")).value_or("");
    constexpr size_t kShown = 2000;
    logs += name + ":\n" + log.substr(log.size() - std::min(log.size(), kShown));
  }
  return logs;
}

testing::CommandResult ApiServer::Helm(std::vector<std::string> arguments) const {
  std::vector<std::string> command{"env",
                                   "HELM_CACHE_HOME=" + (dir_ / "helm"),
                                   Program("helm"),
                                   "--kube-apiserver=" + server_,
                                   "--kube-insecure-skip-tls-verify",
                                   std::string("--kube-token=") + kToken};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return testing::RunCommand(command);
}

testing::CommandResult ApiServer::Kubectl(std::vector<std::string> arguments,
                                          const std::string& input) const {
  // The server signs its own certificate.
  std::vector<std::string> command{Program("kubectl"),
                                   "--kubeconfig=/dev/null",
                                   "--server=" + server_,
                                   "--insecure-skip-tls-verify",
                                   std::string("--token=") + kToken,
                                   "--cache-dir=" + (dir_ / "cache")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return testing::RunCommand(command, input);
}

}  // namespace everstep
