#include "operator/rendezvous/server.h"

#include <pthread.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <map>
#include <thread>
#include <utility>

#include "common/log.h"
#include "operator/rendezvous/connection.h"

namespace everstep {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// After an accept that failed for want of descriptors or memory.
constexpr std::chrono::milliseconds kAcceptRetry{100};

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

TimePoint Now() { return std::chrono::steady_clock::now(); }

}  // namespace

// Everything but the commands' entry runs on thread_. Shared only with callbacks that may outlive
// the server (PersistMembership's `done`).
class RendezvousServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(const Options& options, RendezvousEvents& events)
      : options_(options), events_(events), acceptor_(io_), accept_retry_(io_), tick_(io_) {}

  Status Listen();
  void Run();
  void Shutdown();
  uint16_t port() const { return port_; }

  // Runs `command(session)` on the server's thread, if the job is known then.
  template <typename Command>
  void Post(const std::string& job, Command command) {
    asio::post(io_, [this, job, command = std::move(command)] {
      const auto found = jobs_.find(job);
      if (found == jobs_.end()) return;
      Act(found->second, command(found->second.session));
    });
  }
  void Add(const SessionOptions& options);
  void Remove(const std::string& job);

 private:
  struct Job {
    uint64_t serial = 0;  // tells a job from a later one of the same name
    std::string name;
    Session session;
  };
  struct Client {
    std::shared_ptr<Connection> connection;
    std::string job;  // "" before Hello
    std::unique_ptr<asio::steady_timer> hello_timer;
  };

  void Accept();
  void Welcome(tcp::socket socket);
  void OnMessage(ConnectionId id, const wire::Message& message);
  void OnHello(ConnectionId id, const wire::Hello& hello);
  void OnClosed(ConnectionId id, const std::string& reason);
  void Reject(ConnectionId id, const std::string& reason);
  void RemoveNow(const std::string& job);
  void Tick();

  // Carries out what a session wants, in order.
  void Act(Job& job, const session::Outputs& outputs);
  void Do(Job& job, const session::Output& output);
  std::function<void(RecoveryDecision)> Decider(const Job& job, int rank);
  void Persist(const Job& job, const wire::Membership& membership);
  void Log(const Job& job, const session::Output& output) const;

  const Options options_;
  RendezvousEvents& events_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer accept_retry_;
  asio::steady_timer tick_;
  uint16_t port_ = 0;
  std::map<std::string, Job> jobs_;
  std::map<ConnectionId, Client> clients_;
  ConnectionId next_connection_ = 1;
  uint64_t next_serial_ = 1;
  std::thread thread_;
};

Status RendezvousServer::Impl::Listen() {
  const std::string where = options_.address + ":" + std::to_string(options_.port);
  boost::system::error_code error;
  const auto address = asio::ip::make_address(options_.address, error);
  if (error) return InvalidArgument(where + ": not an IP address to listen on");
  const tcp::endpoint endpoint(address, options_.port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
  if (error) {
    return Unavailable(where + ": cannot listen: " + error.message() +
                       "; choose another port or end the program that has it");
  }
  port_ = acceptor_.local_endpoint(error).port();
  return {};
}

void RendezvousServer::Impl::Run() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] {
    Accept();
    Tick();
    io_.run();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void RendezvousServer::Impl::Shutdown() {
  asio::post(io_, [this] {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    for (auto& [id, client] : clients_) client.connection->Abort();
    clients_.clear();
    io_.stop();
  });
  thread_.join();
}

void RendezvousServer::Impl::Accept() {
  acceptor_.async_accept([this](auto error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) {
      Welcome(std::move(socket));
      return Accept();
    }
    accept_retry_.expires_after(kAcceptRetry);
    accept_retry_.async_wait([this](auto cancelled) {
      if (!cancelled) Accept();
    });
  });
}

void RendezvousServer::Impl::Welcome(tcp::socket socket) {
  if (clients_.size() >= kMaxConnections) return;  // closed as it goes out of scope
  const ConnectionId id = next_connection_++;
  Client& client = clients_[id];
  client.connection = std::make_shared<Connection>(std::move(socket), kMaxQueuedBytes);
  client.hello_timer = std::make_unique<asio::steady_timer>(io_, kHelloTimeout);
  client.hello_timer->async_wait([this, id](auto cancelled) {
    if (!cancelled) Reject(id, "no Hello in time");
  });
  client.connection->Start({
      .on_message = [this, id](const wire::Message& message) { OnMessage(id, message); },
      .on_closed = [this, id](const std::string& reason) { OnClosed(id, reason); },
  });
}

void RendezvousServer::Impl::OnMessage(ConnectionId id, const wire::Message& message) {
  const auto client = clients_.find(id);
  if (client == clients_.end()) return;
  if (client->second.job.empty()) {
    const auto* hello = std::get_if<wire::Hello>(&message);
    if (hello == nullptr) {
      return Reject(id, "spoke before its Hello: " + std::string(wire::TypeName(message)));
    }
    return OnHello(id, *hello);
  }
  const auto job = jobs_.find(client->second.job);
  if (job == jobs_.end()) return;
  Act(job->second, job->second.session.Received(Now(), id, message));
}

void RendezvousServer::Impl::OnHello(ConnectionId id, const wire::Hello& hello) {
  Client& client = clients_.at(id);
  const auto job = jobs_.find(hello.job);
  // Unavailable, not Fenced: the job may be there a moment later, after a restart of the operator.
  if (hello.job.empty() || job == jobs_.end()) return Reject(id, "no such job: " + hello.job);
  client.hello_timer.reset();
  client.job = hello.job;
  Act(job->second, job->second.session.Connected(Now(), id, hello));
}

void RendezvousServer::Impl::OnClosed(ConnectionId id, const std::string& reason) {
  const auto client = clients_.find(id);
  if (client == clients_.end()) return;
  const std::string name = client->second.job;
  clients_.erase(client);
  LogDebug("connection closed", {{"job", name}, {"connection", id}, {"reason", reason}});
  const auto job = jobs_.find(name);
  if (job == jobs_.end()) return;
  Act(job->second, job->second.session.Disconnected(Now(), id));
}

void RendezvousServer::Impl::Reject(ConnectionId id, const std::string& reason) {
  const auto client = clients_.find(id);
  if (client == clients_.end()) return;
  LogDebug("connection refused", {{"connection", id}, {"reason", reason}});
  client->second.connection->CloseWhenSent();
  clients_.erase(client);
}

void RendezvousServer::Impl::Tick() {
  for (auto& [name, job] : jobs_) Act(job, job.session.Tick(Now()));
  tick_.expires_after(options_.tick);
  tick_.async_wait([this](auto cancelled) {
    if (!cancelled) Tick();
  });
}

void RendezvousServer::Impl::Add(const SessionOptions& options) {
  asio::post(io_, [this, options] {
    RemoveNow(options.job);
    jobs_.emplace(options.job, Job{next_serial_++, options.job, Session(options, Now())});
  });
}

void RendezvousServer::Impl::Remove(const std::string& job) {
  asio::post(io_, [this, job] { RemoveNow(job); });
}

void RendezvousServer::Impl::RemoveNow(const std::string& job) {
  if (jobs_.erase(job) == 0) return;
  for (auto client = clients_.begin(); client != clients_.end();) {
    if (client->second.job == job) {
      client->second.connection->CloseWhenSent();
      client = clients_.erase(client);
    } else {
      ++client;
    }
  }
}

void RendezvousServer::Impl::Act(Job& job, const session::Outputs& outputs) {
  for (const session::Output& output : outputs) {
    Log(job, output);
    Do(job, output);
  }
}

void RendezvousServer::Impl::Do(Job& job, const session::Output& output) {
  const std::string& name = job.name;
  const std::string& reason = output.reason;
  const auto act = Overloaded{
      [&](const session::Persist& persist) { Persist(job, persist.membership); },
      [&](const session::Send& send) {
        const auto client = clients_.find(send.connection);
        if (client != clients_.end()) client->second.connection->Send(send.message);
      },
      [&](const session::Close& close) { Reject(close.connection, reason); },
      [&](const session::AskRecovery& ask) {
        events_.OnProcessDied(name, ask.incident, ask.rank, ask.victim, Decider(job, ask.rank));
      },
      [&](const session::IncidentUpdated& updated) {
        events_.OnIncidentUpdated(name, updated.incident);
      },
      [&](const session::Formed& formed) { events_.OnMembership(name, formed.membership, reason); },
      [&](const session::Regrouped& regrouped) {
        events_.OnRegrouped(name, regrouped.generation, regrouped.step);
      },
      [&](const session::Progressed& event) { events_.OnProgress(name, event.progress); },
      [&](const session::Checkpointed& event) { events_.OnCheckpoint(name, event.checkpoint); },
      [&](const session::JobFinished& event) { events_.OnFinished(name, event.finished); },
      [&](const session::JobFailed& failed) { events_.OnFatal(name, failed.rank, reason); },
      [&](const session::ReplicaConnected& event) {
        events_.OnReplicaConnected(name, event.hello);
      },
      [&](const session::ReplicaLost& lost) {
        events_.OnReplicaLost(name, lost.replica, lost.incarnation, reason);
      },
  };
  std::visit(act, output.action);
}

std::function<void(RecoveryDecision)> RendezvousServer::Impl::Decider(const Job& job, int rank) {
  return [weak = weak_from_this(), name = job.name, serial = job.serial,
          rank](const RecoveryDecision& decision) {
    const auto self = weak.lock();
    if (!self) return;
    asio::post(self->io_, [impl = self.get(), name, serial, rank, decision] {
      const auto found = impl->jobs_.find(name);
      if (found == impl->jobs_.end() || found->second.serial != serial) return;
      impl->Act(found->second, found->second.session.Decided(Now(), rank, decision));
    });
  };
}

void RendezvousServer::Impl::Persist(const Job& job, const wire::Membership& membership) {
  const auto done = [weak = weak_from_this(), name = job.name, serial = job.serial,
                     generation = membership.generation](const Status& status) {
    const auto self = weak.lock();
    if (!self) return;
    asio::post(self->io_, [impl = self.get(), name, serial, generation, status] {
      const auto found = impl->jobs_.find(name);
      if (found == impl->jobs_.end() || found->second.serial != serial) return;
      Session& session = found->second.session;
      impl->Act(found->second,
                status ? session.Persisted(Now(), generation)
                       : session.PersistFailed(Now(), generation, status.error().message));
    });
  };
  events_.PersistMembership(job.name, membership, done);
}

void RendezvousServer::Impl::Log(const Job& job, const session::Output& output) const {
  if (std::holds_alternative<session::Formed>(output.action) ||
      std::holds_alternative<session::AskRecovery>(output.action) ||
      std::holds_alternative<session::ReplicaLost>(output.action) ||
      std::holds_alternative<session::JobFinished>(output.action) ||
      std::holds_alternative<session::JobFailed>(output.action)) {
    LogInfo(output.reason, {{"job", job.name}});
  } else {
    LogDebug(output.reason, {{"job", job.name}});
  }
}

Result<std::unique_ptr<RendezvousServer>> RendezvousServer::Start(const Options& options,
                                                                  RendezvousEvents& events) {
  auto impl = std::make_shared<Impl>(options, events);
  RETURN_IF_ERROR(impl->Listen());
  impl->Run();
  return std::unique_ptr<RendezvousServer>(new RendezvousServer(std::move(impl)));
}

RendezvousServer::RendezvousServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
RendezvousServer::~RendezvousServer() { impl_->Shutdown(); }

uint16_t RendezvousServer::port() const { return impl_->port(); }
void RendezvousServer::AddJob(const SessionOptions& job) { impl_->Add(job); }
void RendezvousServer::RemoveJob(const std::string& job) { impl_->Remove(job); }

void RendezvousServer::StartProcess(const std::string& job, int rank, Duration delay,
                                    const std::string& reason) {
  const RecoveryDecision decision{RecoveryDecision::Kind::kRestartInPlace, delay, reason};
  impl_->Post(job, [=](Session& session) { return session.Decided(Now(), rank, decision); });
}

void RendezvousServer::PodReplaced(const std::string& job, int replica, int incarnation) {
  impl_->Post(job,
              [=](Session& session) { return session.PodReplaced(Now(), replica, incarnation); });
}

void RendezvousServer::AllowMembers(const std::string& job, int count) {
  impl_->Post(job, [=](Session& session) { return session.AllowMembers(Now(), count); });
}

void RendezvousServer::Fail(const std::string& job, const std::string& reason) {
  impl_->Post(job, [=](Session& session) { return session.Fail(Now(), reason); });
}

void RendezvousServer::Stop(const std::string& job, Duration grace, const std::string& reason) {
  impl_->Post(job, [=](Session& session) { return session.Stop(Now(), grace, reason); });
}

}  // namespace everstep
