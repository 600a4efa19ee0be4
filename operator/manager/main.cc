// The `everstep-operator` program.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>

#include "common/log.h"
#include "operator/manager/manager.h"

namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs TrainingJobs on Kubernetes"};
  app.set_version_flag("--version", EVERSTEP_VERSION);
  everstep::ManagerOptions options;
  options.system_namespace = Variable("POD_NAMESPACE");
  options.pod_name = Variable("POD_NAME");
  options.pod_ip = Variable("POD_IP");
  std::string log_format = "text";
  app.add_option("--namespace", options.namespaces, "Watch this namespace only (repeatable)");
  app.add_option("--kubeconfig", options.kubeconfig, "Instead of the pod's own account");
  app.add_flag("--leader-elect", options.leader_elect, "Wait for a Lease before acting");
  app.add_option("--system-namespace", options.system_namespace,
                 "Where the operator's own objects are; default POD_NAMESPACE");
  app.add_option("--rendezvous-port", options.rendezvous_port, "0: any free one")
      ->capture_default_str();
  app.add_option("--rendezvous-address", options.rendezvous_address,
                 "host:port by which pods find rendezvous; default the Service's address");
  app.add_option("--rendezvous-service", options.rendezvous_service)->capture_default_str();
  app.add_option("--health-port", options.health_port, "0: any free one")->capture_default_str();
  app.add_option("--worker-image", options.worker_image, "Where a job's spec.image says nothing");
  app.add_option("--supervisor-image", options.supervisor_image,
                 "Brings the supervisor into the images of programs of one's own");
  app.add_option("--workers", options.workers, "Jobs reconciled at a time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--log-format", log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  everstep::LogOptions log = everstep::LogOptionsFromEnvironment("");
  if (log_format == "json") log.format = everstep::LogFormat::kJson;
  everstep::ConfigureLog(log);

  // Taken by the main thread alone; others inherit the mask.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return everstep::RunManager(options);
}
