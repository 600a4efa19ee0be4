#include "operator/manager/manager.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/log.h"
#include "operator/api/names.h"
#include "operator/api/object_key.h"
#include "operator/http/server.h"
#include "operator/kube/credentials.h"
#include "operator/kube/kube_object_client.h"
#include "operator/kube/leader_election.h"
#include "operator/kube/transport_cpprest.h"
#include "operator/manager/secret_key.h"
#include "operator/metrics/metrics.h"
#include "operator/shell/controller.h"

namespace everstep {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitLost = 1;
constexpr int kExitBadInput = 2;
constexpr char kLeaseName[] = "everstep-operator";
constexpr char kSecretName[] = "everstep-rendezvous-ca";
constexpr char kLeaderLabel[] = "everstep.dev/leader";
// Renewals have to fail before the lease is over.
constexpr std::chrono::seconds kElectionRequestTimeout{4};
constexpr std::chrono::seconds kElectionLongestWaiting{1};

Result<kube::ClusterAccess> Access(const ManagerOptions& options) {
  if (!options.kubeconfig.empty()) return kube::AccessFromKubeconfig(options.kubeconfig);
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  auto access = kube::AccessFromPod(environment);
  if (!access) {
    access.error().message += "; outside of a cluster give --kubeconfig";
  }
  return access;
}

// Jobs are shown in their status; here they only leave a line when something changes.
class LogObserver final : public JobObserver {
 public:
  void OnPhase(const std::string& job, const OrderedJson& status) override {
    LogDebug("phase", {{"job", job}, {"phase", status.value("phase", "")}});
  }
  void OnProgress(const std::string&, const wire::Progress&) override {}
  void OnCheckpoint(const std::string& job, const wire::CheckpointSaved& saved) override {
    if (!saved.warning.empty()) LogWarning(saved.warning, {{"job", job}});
  }
  void OnIncident(const std::string&, const Incident&) override {}
  void OnMembership(const std::string&, const wire::Membership&, const std::string&) override {}
};

class Manager {
 public:
  explicit Manager(const ManagerOptions& options) : options_(options) {}

  int Run() {
    if (const Status started = Start(); !started) {
      LogError(started.error().message);
      return kExitBadInput;
    }
    if (options_.leader_elect) {
      election_ = std::make_unique<kube::LeaderElection>(
          kube::LeaderElection::Options{.lease = {options_.system_namespace, kLeaseName},
                                        .identity = Identity()},
          *election_client_, clock_, [] {
            // Another may be acting already: nothing more may be done, not even in order.
            LogError("the lease is lost: exits, so that only one operator acts");
            _exit(kExitLost);
          });
    }
    // Standing by and leading are both ended by a signal.
    while (election_ && !AwaitLeadershipBriefly()) {
      if (SignalWithin(std::chrono::milliseconds(50))) return End();
    }
    if (const Status leading = Lead(); !leading) {
      LogError(leading.error().message);
      if (election_) election_->Stop();
      return kExitBadInput;
    }
    while (!SignalWithin(std::chrono::hours(1))) {
    }
    return End();
  }

 private:
  Status Start() {
    ASSIGN_OR_RETURN(const kube::ClusterAccess access, Access(options_));
    if (options_.system_namespace.empty()) options_.system_namespace = access.namespace_name;
    ASSIGN_OR_RETURN(transport_,
                     kube::MakeTransport(access, {.user_agent = "everstep-operator"}, clock_));
    ASSIGN_OR_RETURN(election_transport_,
                     kube::MakeTransport(access,
                                         {.user_agent = "everstep-operator leader election",
                                          .request_timeout = kElectionRequestTimeout},
                                         clock_));
    client_ = std::make_unique<kube::ApiClient>(*transport_);
    election_client_ = std::make_unique<kube::ApiClient>(
        *election_transport_,
        kube::ApiClient::Options{.longest_waiting = kElectionLongestWaiting, .pause = {}});
    ASSIGN_OR_RETURN(const std::string key,
                     EnsureSecretKey(*client_, {options_.system_namespace, kSecretName}));
    key_ = key;
    objects_ = std::make_unique<kube::KubeObjectClient>(*client_, options_.namespaces, clock_);
    const auto health = [] { return HttpAnswer{.body = "ok\n"}; };
    const auto ready = [this] {
      if (objects_->synced()) return HttpAnswer{.body = "ok\n"};
      return HttpAnswer{.status = 503, .body = "the objects were not listed yet\n"};
    };
    ASSIGN_OR_RETURN(http_, HttpServer::Start({.port = options_.health_port},
                                              {{"/healthz", health},
                                               {"/readyz", ready},
                                               {"/metrics", [this] { return Metrics(); }}}));
    LogInfo("started", {{"health_port", http_->port()}});
    return {};
  }

  // On the health server's thread.
  HttpAnswer Metrics() {
    MetricsSnapshot snapshot;
    snapshot.synced = objects_->synced();
    if (const auto jobs = objects_->List(names::kKind)) {
      for (const OrderedJson& job : *jobs) {
        const OrderedJson status = job.value("status", OrderedJson::object());
        ++snapshot.jobs[{NamespaceOf(KeyOf(job)), status.value("phase", "Pending")}];
      }
    }
    if (const Controller* controller = leading_) {
      snapshot.leading = true;
      const WorkQueue::Figures queue = controller->queue_figures();
      snapshot.queue_depth = static_cast<double>(queue.depth);
      snapshot.queue_added = static_cast<double>(queue.added);
      snapshot.queue_retried = static_cast<double>(queue.retried);
      snapshot.queue_unfinished_seconds = Seconds(queue.unfinished);
      snapshot.queue_longest_seconds = Seconds(queue.longest);
    }
    return {.body = MetricsPage(snapshot), .content_type = "text/plain; version=0.0.4"};
  }

  std::string Identity() const {
    if (!options_.pod_name.empty()) return options_.pod_name;
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    return std::string(host) + "_" + std::to_string(getpid());
  }

  bool AwaitLeadershipBriefly() const { return election_->IsLeading(); }

  // True when the process is to end.
  static bool SignalWithin(std::chrono::milliseconds time) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(time);
    const timespec wait{whole.count(), (time - whole).count() * 1'000'000};
    return sigtimedwait(&signals, nullptr, &wait) > 0;
  }

  Status Lead() {
    while (!objects_->synced()) {
      if (SignalWithin(std::chrono::milliseconds(10))) return {};
    }
    controller_ = std::make_unique<Controller>(
        Controller::Options{
            .pod_context = {.worker_image = options_.worker_image,
                            .supervisor_image = options_.supervisor_image},
            .token_of = [key = key_](const TrainingJob& job) { return JobToken(key, job.uid); },
            .workers = options_.workers,
            .status_threads = options_.status_threads},
        *objects_, clock_, observer_);
    ASSIGN_OR_RETURN(
        server_, RendezvousServer::Start({.address = "0.0.0.0", .port = options_.rendezvous_port},
                                         *controller_));
    ASSIGN_OR_RETURN(const std::string address, RendezvousAddress());
    MarkLeader(true);
    controller_->Start(*server_, address);
    leading_ = controller_.get();
    LogInfo("serves jobs", {{"rendezvous", address}});
    return {};
  }

  // An address, not a name: supervisors in other people's images cannot resolve names.
  Result<std::string> RendezvousAddress() {
    if (!options_.rendezvous_address.empty()) return options_.rendezvous_address;
    const std::string port = std::to_string(server_->port());
    const auto service =
        client_->Get(kube::kServices, {options_.system_namespace, options_.rendezvous_service});
    if (service) {
      const OrderedJson spec = service->value("spec", OrderedJson::object());
      const std::string ip = spec.value("clusterIP", "");
      if (!ip.empty() && ip != "None") return Bracketed(ip) + ":" + port;
    } else if (service.error().code != ErrorCode::kNotFound) {
      return tl::unexpected(service.error());
    }
    if (!options_.pod_ip.empty()) return Bracketed(options_.pod_ip) + ":" + port;
    return InvalidArgument("pods could not find rendezvous: there is no Service " +
                           options_.system_namespace + "/" + options_.rendezvous_service +
                           ", and POD_IP is not set; give --rendezvous-address");
  }
  static std::string Bracketed(const std::string& ip) {
    return ip.find(':') == std::string::npos ? ip : "[" + ip + "]";
  }

  // The rendezvous Service leads to the pod with this label.
  void MarkLeader(bool leads) {
    if (options_.pod_name.empty()) return;
    const OrderedJson value = leads ? OrderedJson("true") : OrderedJson();
    const auto patched = client_->Patch(kube::kPods, {options_.system_namespace, options_.pod_name},
                                        {{"metadata", {{"labels", {{kLeaderLabel, value}}}}}});
    if (!patched) LogWarning("leader label: " + patched.error().message);
  }

  int End() {
    LogInfo("is told to end");
    http_.reset();
    leading_ = nullptr;
    if (controller_) controller_->Stop();
    server_.reset();
    controller_.reset();
    if (election_) {
      const bool led = election_->IsLeading();
      if (led) MarkLeader(false);
      election_->Stop();
    }
    return kExitDone;
  }

  ManagerOptions options_;
  const SystemClock clock_;
  std::string key_;
  LogObserver observer_;
  // In the order of what borrows what.
  std::unique_ptr<kube::Transport> transport_, election_transport_;
  std::unique_ptr<kube::ApiClient> client_, election_client_;
  std::unique_ptr<kube::KubeObjectClient> objects_;
  std::atomic<const Controller*> leading_ = nullptr;  // for the health server's thread
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<kube::LeaderElection> election_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<RendezvousServer> server_;
};

}  // namespace

int RunManager(const ManagerOptions& options) { return Manager(options).Run(); }

}  // namespace everstep
