#include "worker/supervisor/supervisor.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/log.h"

namespace everstep {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitFatal = 2;

TimePoint Now() { return std::chrono::steady_clock::now(); }

}  // namespace

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)),
      signals_(io_, SIGCHLD, SIGTERM, SIGINT),
      watch_timer_(io_),
      grace_timer_(io_) {
  for (int signal : {SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) signals_.add(signal);
  const int processes = options_.hello.processes;
  for (int local = 0; local < processes; ++local) {
    const int rank = options_.hello.replica * processes + local;
    RankProcess::Config config{
        .rank = rank,
        .spawn = {.command = options_.command,
                  .environment = ProcessEnvironment(options_, local),
                  .heartbeat_fd = -1},
        .stderr_prefix = processes > 1 ? "[rank " + std::to_string(rank) + "] " : "",
    };
    processes_.push_back(std::make_unique<RankProcess>(
        io_, std::move(config), [this](const wire::Message& message) { OnRankMessage(message); }));
  }
  if (options_.rendezvous_host.empty()) return;
  link_ = std::make_unique<RendezvousLink>(
      io_,
      RendezvousLink::Config{options_.rendezvous_host, options_.rendezvous_port, options_.hello},
      RendezvousLink::Handlers{
          .on_message = [this](const wire::Message& message) { OnRendezvousMessage(message); },
          .snapshot =
              [this] {
                std::vector<wire::Message> all;
                for (const auto& process : processes_) {
                  for (auto& message : process->Snapshot()) all.push_back(std::move(message));
                }
                return all;
              },
          .heartbeat =
              [this] {
                wire::Heartbeat heartbeat;
                for (const auto& process : processes_) heartbeat.ranks.push_back(process->beat());
                return heartbeat;
              },
      });
}

Supervisor::~Supervisor() = default;

int Supervisor::Run() {
  // Orphans of the training processes come to us, as they do to PID 1.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  AwaitSignal();
  for (const auto& process : processes_) process->Start();
  if (link_) link_->Connect();
  Watch();
  EndIfDone();
  io_.run();
  KillAll();
  return ExitCode();
}

void Supervisor::AwaitSignal() {
  signals_.async_wait([this](auto error, int signal) {
    if (error) return;
    OnSignal(signal);
    AwaitSignal();
  });
}

void Supervisor::OnSignal(int signal) {
  switch (signal) {
    case SIGCHLD:
      return Reap();
    case SIGTERM:
    case SIGINT:
      return BeginStop(signal, std::chrono::seconds(options_.stop_grace_seconds),
                       signal == SIGINT ? "interrupted" : "asked to stop by SIGTERM");
    default:
      for (const auto& process : processes_) process->Signal(signal);
  }
}

void Supervisor::Reap() {
  int status = 0;
  // One signal may stand for many deaths, also of orphans that we never started.
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (const auto& process : processes_) {
      if (process->alive() && process->pid() == pid) {
        process->Reaped(status, Now());
        break;
      }
    }
  }
  for (const auto& process : processes_) {
    if (process->fatal() && process->state() == RankProcess::State::kDead && !stopping_) {
      BeginStop(SIGTERM, std::chrono::seconds(options_.stop_grace_seconds),
                process->fatal()->reason);
    }
  }
  EndIfDone();
}

void Supervisor::Watch() {
  const TimePoint now = Now();
  for (const auto& process : processes_) process->Watch(now);
  watch_timer_.expires_after(kWatchInterval);
  watch_timer_.async_wait([this](auto cancelled) {
    if (!cancelled) Watch();
  });
}

void Supervisor::OnRankMessage(const wire::Message& message) {
  if (const auto* died = std::get_if<wire::ProcessDied>(&message)) {
    LogWarning("process died", {{"rank", died->rank},
                                {"cause", wire::DeathCauseName(died->cause)},
                                {"exit_code", died->exit_code},
                                {"signal", died->signal},
                                {"detected_ms", died->detect_seconds * 1e3}});
  }
  if (link_) link_->Send(message);
}

void Supervisor::OnRendezvousMessage(const wire::Message& message) {
  if (const auto* membership = std::get_if<wire::Membership>(&message)) {
    for (const auto& process : processes_) process->Deliver(*membership);
  } else if (const auto* start = std::get_if<wire::StartProcess>(&message)) {
    const int local = start->rank - options_.hello.replica * options_.hello.processes;
    if (local < 0 || local >= options_.hello.processes || stopping_) return;
    LogInfo("starting a process in place", {{"rank", start->rank}});
    processes_[static_cast<size_t>(local)]->Restart();
  } else if (const auto* stop = std::get_if<wire::Stop>(&message)) {
    const auto grace = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(std::clamp(stop->grace_seconds, 0.0, 86400.0)));
    BeginStop(SIGTERM, grace, stop->reason);
  } else if (const auto* fenced = std::get_if<wire::Fenced>(&message)) {
    LogError("fenced: " + fenced->reason);
    stopping_ = true;
    for (const auto& process : processes_) process->ForgetRestart();
    KillAll();
    EndIfDone();
  }
}

void Supervisor::BeginStop(int signal, Duration grace, const std::string& reason) {
  if (!std::exchange(stopping_, true)) {
    LogInfo("stopping: " + reason);
    grace_timer_.expires_after(grace);
    grace_timer_.async_wait([this](auto cancelled) {
      if (cancelled) return;
      LogWarning("processes did not end in time and are killed");
      KillAll();
    });
  }
  const wire::Stop stop{Seconds(grace), reason};
  for (const auto& process : processes_) {
    process->ForgetRestart();
    process->Deliver(stop);
    process->Signal(signal);
  }
  EndIfDone();
}

void Supervisor::KillAll() {
  for (const auto& process : processes_) process->KillGroup();
}

void Supervisor::EndIfDone() {
  using State = RankProcess::State;
  const auto all = [&](auto predicate) {
    return std::ranges::all_of(processes_, [&](const auto& each) { return predicate(*each); });
  };
  if (ending_) return;
  if (!link_ && !stopping_ &&
      !all([](const RankProcess& each) { return each.state() != State::kDead; })) {
    // Nobody will order a restart.
    return BeginStop(SIGTERM, std::chrono::seconds(options_.stop_grace_seconds),
                     "a process has failed");
  }
  const bool finished =
      all([](const RankProcess& each) { return each.state() == State::kFinished; });
  const bool stopped = stopping_ && all([](const RankProcess& each) { return !each.alive(); });
  if (!finished && !stopped) return;
  ending_ = true;
  if (!link_) return io_.stop();
  link_->Flush(kFlushAtEnd, [this] { io_.stop(); });
}

int Supervisor::ExitCode() const {
  bool finished = true;
  for (const auto& process : processes_) {
    if (process->fatal()) return process->exit_code() != 0 ? process->exit_code() : kExitFatal;
    finished = finished && process->state() == RankProcess::State::kFinished;
  }
  return finished ? 0 : kExitFailed;
}

}  // namespace everstep
