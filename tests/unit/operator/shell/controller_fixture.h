// A controller with the real store and the real rendezvous server. The test plays the pods: it sets
// their phases in the store and speaks for their supervisors.
#ifndef EVERSTEP_TESTS_UNIT_OPERATOR_SHELL_CONTROLLER_FIXTURE_H_
#define EVERSTEP_TESTS_UNIT_OPERATOR_SHELL_CONTROLLER_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/api/names.h"
#include "operator/local/object_store.h"
#include "operator/shell/controller.h"
#include "tests/support/await.h"
#include "tests/support/frame_socket.h"
#include "tests/support/temp_dir.h"

namespace everstep {

// Counts what it is told.
class RecordingObserver final : public JobObserver {
 public:
  void OnPhase(const std::string&, const OrderedJson& status) override {
    Note("phase " + status["phase"].get<std::string>());
  }
  void OnProgress(const std::string&, const wire::Progress& progress) override {
    Note("progress " + std::to_string(progress.step));
  }
  void OnCheckpoint(const std::string&, const wire::CheckpointSaved& saved) override {
    Note("checkpoint " + std::to_string(saved.step));
  }
  void OnIncident(const std::string&, const Incident& incident) override {
    Note("incident " + std::to_string(incident.rank));
  }
  void OnMembership(const std::string&, const wire::Membership& membership,
                    const std::string&) override {
    Note("membership " + std::to_string(membership.generation));
  }
  int Count(const std::string& event) {
    const std::lock_guard lock(mutex_);
    return counts_[event];
  }

 private:
  void Note(const std::string& event) {
    const std::lock_guard lock(mutex_);
    ++counts_[event];
  }
  std::mutex mutex_;
  std::map<std::string, int> counts_;
};

// The store, with places where a test can step in.
class HookedClient final : public ObjectClient {
 public:
  explicit HookedClient(ObjectClient& inner) : inner_(inner) {}
  // Called before; an error is returned instead of doing it. Set before the controller starts.
  std::function<Status(const OrderedJson&)> before_update_status;
  std::function<void()> before_list_of;

  Result<OrderedJson> Get(const std::string& kind, const std::string& name) override {
    return inner_.Get(kind, name);
  }
  Result<std::vector<OrderedJson>> List(const std::string& kind) override {
    return inner_.List(kind);
  }
  Result<std::vector<OrderedJson>> ListOf(const std::string& kind,
                                          const std::string& job_key) override {
    if (before_list_of) before_list_of();
    return inner_.ListOf(kind, job_key);
  }
  Result<OrderedJson> Create(OrderedJson object) override { return inner_.Create(object); }
  Result<OrderedJson> Update(OrderedJson object) override { return inner_.Update(object); }
  Result<OrderedJson> UpdateStatus(OrderedJson object) override {
    if (before_update_status) RETURN_IF_ERROR(before_update_status(object));
    return inner_.UpdateStatus(object);
  }
  Status Delete(const std::string& kind, const std::string& name) override {
    return inner_.Delete(kind, name);
  }
  void Subscribe(
      std::function<void(const std::string& kind, const std::string& name)> on_change) override {
    inner_.Subscribe(std::move(on_change));
  }

 private:
  ObjectClient& inner_;
};

class ControllerFixture : public testing::Test {
 protected:
  explicit ControllerFixture(const Clock& clock, int status_threads = 2)
      : clock_(clock), status_threads_(status_threads) {
    store_ = std::move(*ObjectStore::Open(directory_.path(), clock_));
    client_ = std::make_unique<HookedClient>(*store_);
    CreateClaim();
    MakeController();
  }
  void MakeController() {
    controller_ =
        std::make_unique<Controller>(Controller::Options{.pod_context = {.token = "secret"},
                                                         .workers = 2,
                                                         .status_threads = status_threads_,
                                                         .default_threads = 2},
                                     *client_, clock_, observer_);
  }
  void Start() {
    auto server = RendezvousServer::Start({}, *controller_);
    ASSERT_TRUE(server.has_value()) << server.error().message;
    server_ = std::move(*server);
    controller_->Start(*server_, "127.0.0.1:" + std::to_string(server_->port()));
  }
  ~ControllerFixture() override { EndController(); }
  void EndController() {
    if (controller_) controller_->Stop();
    server_.reset();
  }

  // A heartbeat that no machine is too slow for: only what the test does may happen.
  void CreateJob(const OrderedJson& spec = OrderedJson::object()) {
    OrderedJson job = {{"apiVersion", names::kApiVersion},
                       {"kind", names::kKind},
                       {"metadata", {{"name", "job"}}}};
    job["spec"] = {{"train", {{"stage", "sft"}}}, {"health", {{"heartbeatTimeoutSeconds", 3600}}}};
    job["spec"].merge_patch(spec);
    const auto created = store_->Create(job);
    ASSERT_TRUE(created.has_value()) << created.error().message;
  }
  void CreateClaim(const std::string& mode = "ReadWriteMany") {
    const auto created = store_->Create({{"kind", "PersistentVolumeClaim"},
                                         {"metadata", {{"name", "job"}}},
                                         {"spec", {{"accessModes", OrderedJson::array({mode})}}}});
    ASSERT_TRUE(created.has_value()) << created.error().message;
  }
  OrderedJson StatusOf(const std::string& kind = names::kKind, const std::string& name = "job") {
    const auto object = store_->Get(kind, name);
    return object && object->contains("status") ? (*object)["status"] : OrderedJson::object();
  }
  std::string UidOfJob() { return (*store_->Get(names::kKind, "job"))["metadata"]["uid"]; }
  // A pod that was there before the controller, of this job or of the one with `uid`.
  void CreatePod(int replica, int incarnation, const std::string& uid = "") {
    OrderedJson metadata = {{"name", names::Pod("job", replica, incarnation)},
                            {"labels",
                             {{names::kJobLabel, "job"},
                              {names::kReplicaLabel, std::to_string(replica)},
                              {names::kIncarnationLabel, std::to_string(incarnation)}}}};
    metadata["ownerReferences"] = OrderedJson::array({{{"uid", uid.empty() ? UidOfJob() : uid}}});
    const auto created = store_->Create({{"kind", "Pod"}, {"metadata", metadata}});
    ASSERT_TRUE(created.has_value()) << created.error().message;
  }
  void ChangeSpec(const std::function<void(OrderedJson&)>& change) {
    while (true) {
      OrderedJson job = *store_->Get(names::kKind, "job");
      change(job["spec"]);
      if (store_->Update(job)) return;
    }
  }
  void ChangeStatus(const std::string& kind, const std::string& name,
                    const std::function<void(OrderedJson&)>& change) {
    while (true) {
      OrderedJson object = *store_->Get(kind, name);
      change(object["status"]);
      if (store_->UpdateStatus(object)) return;
    }
  }
  void SetPodPhase(const std::string& name, const std::string& phase) {
    ChangeStatus("Pod", name, [&](OrderedJson& status) { status["phase"] = phase; });
  }
  bool Has(const std::string& kind, const std::string& name) {
    return store_->Get(kind, name).has_value();
  }
  bool AwaitPod(const std::string& name) {
    return AwaitTrue([&] { return Has("Pod", name); });
  }
  bool AwaitPhase(const std::string& phase) {
    return AwaitTrue([&] { return StatusOf().value("phase", "") == phase; });
  }

  // The supervisor of a pod that exists, which runs from now on. Like a real one it dials again
  // while the job is not served yet.
  FrameSocket Connect(int replica, int incarnation = 0) {
    const std::string pod = names::Pod("job", replica, incarnation);
    EXPECT_TRUE(AwaitPod(pod));
    if (Has("Pod", pod)) SetPodPhase(pod, "Running");
    std::optional<FrameSocket> socket;
    EXPECT_TRUE(AwaitTrue([&] {
      socket = Dial(replica, incarnation);
      return socket->Await<wire::Welcome>().has_value();
    }));
    return std::move(*socket);
  }
  FrameSocket Dial(int replica, int incarnation) {
    FrameSocket socket = FrameSocket::Connect(server_->port());
    socket.Send(wire::Hello{.job = "job",
                            .token = "secret",
                            .replica = replica,
                            .incarnation = incarnation,
                            .processes = 1,
                            .pod = names::Pod("job", replica, incarnation),
                            .node = "local"});
    return socket;
  }
  // Two replicas in generation 1, after step 0.
  std::pair<FrameSocket, FrameSocket> TrainingPair() {
    FrameSocket first = Connect(0), second = Connect(1);
    first.Send(wire::ProcessStarted{0, 100});
    second.Send(wire::ProcessStarted{1, 101});
    first.Send(wire::Ready{0, "e0"});
    second.Send(wire::Ready{1, "e1"});
    EXPECT_EQ(first.Await<wire::Membership>()->generation, 1u);
    EXPECT_EQ(second.Await<wire::Membership>()->generation, 1u);
    first.Send(wire::Regrouped{0, 1, 0});
    second.Send(wire::Regrouped{1, 1, 0});
    EXPECT_TRUE(AwaitPhase("Running"));
    return {std::move(first), std::move(second)};
  }

  TempDir directory_;
  const Clock& clock_;
  const int status_threads_;
  RecordingObserver observer_;
  std::unique_ptr<ObjectStore> store_;
  std::unique_ptr<HookedClient> client_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<RendezvousServer> server_;
};

}  // namespace everstep

#endif  // EVERSTEP_TESTS_UNIT_OPERATOR_SHELL_CONTROLLER_FIXTURE_H_
