// everstep-supervisor [--] COMMAND...: runs COMMAND (default: the everstep-worker beside this
// program) once per process of the pod. Everything else comes from the environment, see options.h.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/log.h"
#include "worker/supervisor/network_interface.h"
#include "worker/supervisor/supervisor.h"

namespace everstep {
namespace {

constexpr int kExitBadInput = 2;
constexpr uint16_t kDefaultMasterPort = 29500;

constexpr char kUsage[] =
    "usage: everstep-supervisor [--] [COMMAND...]\n"
    "       everstep-supervisor --install PATH\n"
    "Starts COMMAND (default: everstep-worker, beside this program) once per process of the pod,\n"
    "watches, stops and restarts it. Configured by EVERSTEP_* variables.\n"
    "--install copies this program to PATH, where another image's container will start it.\n";

int Install(const std::string& path) {
  std::error_code error;
  std::filesystem::copy_file("/proc/self/exe", path,
                             std::filesystem::copy_options::overwrite_existing, error);
  if (!error) return 0;
  LogError(path + ": cannot be written: " + error.message());
  return kExitBadInput;
}

// Names the interface towards the master to NCCL and Gloo, unless somebody has already.
void ChooseNetworkInterface(SupervisorOptions& options) {
  Environment& environment = options.environment;
  const auto master = environment.find("MASTER_ADDR");
  if (master == environment.end() || master->second.empty()) return;
  if (environment.contains("NCCL_SOCKET_IFNAME") && environment.contains("GLOO_SOCKET_IFNAME")) {
    return;
  }
  auto name = InterfaceTowards(master->second, kDefaultMasterPort);
  // The master's name may not be known yet, and a static program knows none: peers connect to the
  // pod's own address in any case.
  const auto own = environment.find("EVERSTEP_POD_IP");
  if (!name && own != environment.end()) {
    if (auto of_pod = InterfaceWith(own->second)) name = std::move(of_pod);
  }
  if (!name) {
    LogWarning(name.error().message + "; NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME stay unset");
    return;
  }
  environment.emplace("NCCL_SOCKET_IFNAME", *name);
  environment.emplace("GLOO_SOCKET_IFNAME", *name);
}

int Main(int argc, char** argv) {
  ConfigureLog(LogOptionsFromEnvironment("supervisor"));
  std::vector<std::string> command(argv + 1, argv + argc);
  if (!command.empty() && (command[0] == "--help" || command[0] == "-h")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (command.size() == 2 && command[0] == "--install") return Install(command[1]);
  if (!command.empty() && command[0] == "--") command.erase(command.begin());
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  auto options = ReadSupervisorOptions(CurrentEnvironment(), std::move(command),
                                       (self.parent_path() / "everstep-worker").string());
  if (!options) {
    LogError(options.error().message);
    return kExitBadInput;
  }
  if (options->parent_pid != 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != options->parent_pid) return 1;  // it was gone already
  }
  ChooseNetworkInterface(*options);
  return Supervisor(std::move(*options)).Run();
}

}  // namespace
}  // namespace everstep

int main(int argc, char** argv) { return everstep::Main(argc, argv); }
