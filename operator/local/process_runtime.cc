#include "operator/local/process_runtime.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "common/files.h"
#include "common/log.h"
#include "operator/api/names.h"

extern char** environ;

namespace everstep {
namespace {

namespace fs = std::filesystem;

// How often a process is looked at that gives no notice of its end (out of descriptors).
constexpr int kLookMs = 100;

int ReplicaOf(const OrderedJson& pod) {
  return std::stoi(pod["metadata"]["labels"].value(names::kReplicaLabel, "0"));
}

std::string PhaseOf(const OrderedJson& pod) {
  return pod.contains("status") ? pod["status"].value("phase", "Pending") : "Pending";
}

OrderedJson EndedStatus(int wait_status) {
  const bool exited = WIFEXITED(wait_status);
  const int code = exited ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
  OrderedJson terminated = {{"exitCode", code}};
  if (!exited) terminated["signal"] = WTERMSIG(wait_status);
  return {{"phase", code == 0 ? "Succeeded" : "Failed"},
          {"containerStatuses",
           {{{"name", names::kWorkerContainer}, {"state", {{"terminated", terminated}}}}}}};
}

OrderedJson FailedStatus(const std::string& reason, const std::string& message) {
  return {{"phase", "Failed"}, {"reason", reason}, {"message", message}};
}

// NAME=value strings and the pointers that exec takes.
class EnvironmentBlock {
 public:
  explicit EnvironmentBlock(const std::map<std::string, std::string>& own) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      if (!own.contains(text.substr(0, text.find('=')))) strings_.push_back(text);
    }
    for (const auto& [name, value] : own) strings_.push_back(name + "=" + value);
    for (std::string& text : strings_) pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  char** data() { return pointers_.data(); }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_;
};

}  // namespace

ProcessRuntime::ProcessRuntime(Options options, ObjectStore& store, const Clock& clock, int wake_fd)
    : options_(std::move(options)), store_(store), clock_(clock), wake_fd_(wake_fd) {}

Result<std::unique_ptr<ProcessRuntime>> ProcessRuntime::Start(const Options& options,
                                                              ObjectStore& store,
                                                              const Clock& clock) {
  for (const char* folder : {"claims", "config", "logs"}) {
    RETURN_IF_ERROR(MakeDirectories(options.run_directory + "/" + folder));
  }
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) return Internal("cannot make an eventfd: " + ErrnoText(errno));
  std::unique_ptr<ProcessRuntime> runtime(new ProcessRuntime(options, store, clock, wake_fd));
  RETURN_IF_ERROR(runtime->MarkLostPods());
  store.Subscribe([wake_fd](const std::string& kind, const std::string&) {
    const uint64_t one = 1;
    if (kind == "Pod") [[maybe_unused]]
      const ssize_t n = write(wake_fd, &one, sizeof(one));
  });
  runtime->thread_ = std::thread([&self = *runtime] { self.Run(); });
  return runtime;
}

ProcessRuntime::~ProcessRuntime() {
  ending_ = true;
  Wake();
  if (thread_.joinable()) thread_.join();
  // The eventfd stays open: the store's subscription may still write to it.
}

void ProcessRuntime::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

Status ProcessRuntime::MarkLostPods() {
  ASSIGN_OR_RETURN(const std::vector<OrderedJson> pods, store_.List("Pod"));
  for (const OrderedJson& pod : pods) {
    const auto name = pod["metadata"]["name"].get<std::string>();
    if (pod["metadata"].contains("deletionTimestamp")) {
      RETURN_IF_ERROR(store_.Remove("Pod", name));
    } else if (PhaseOf(pod) == "Running") {
      SetPodStatus(name, FailedStatus("Lost", "its process ended with the run before"));
    }
  }
  return {};
}

void ProcessRuntime::Run() {
  while (!ending_) {
    ReapEnded();
    SyncPods();
    WaitForSomething();
  }
  for (auto& [name, process] : processes_) {
    kill(-process.pid, SIGKILL);
    waitpid(process.pid, nullptr, 0);
    close(process.pidfd);
  }
}

void ProcessRuntime::WaitForSomething() {
  std::vector<pollfd> fds{{wake_fd_, POLLIN, 0}};
  int timeout_ms = -1;
  for (const auto& [name, process] : processes_) {
    fds.push_back({process.pidfd, POLLIN, 0});
    int left = process.pidfd < 0 ? kLookMs : -1;
    if (process.kill_at) {
      left = std::max(0, static_cast<int>(Milliseconds(*process.kill_at - clock_.Now())) + 1);
    }
    if (left >= 0) timeout_ms = timeout_ms < 0 ? left : std::min(timeout_ms, left);
  }
  poll(fds.data(), fds.size(), timeout_ms);
  uint64_t drained = 0;
  [[maybe_unused]] const ssize_t got = read(wake_fd_, &drained, sizeof(drained));
}

void ProcessRuntime::SyncPods() {
  const auto pods = store_.List("Pod");
  if (!pods) return;
  std::set<std::string> known;
  for (const OrderedJson& pod : *pods) {
    const auto name = pod["metadata"]["name"].get<std::string>();
    known.insert(name);
    const auto process = processes_.find(name);
    const bool deleting = pod["metadata"].contains("deletionTimestamp");
    if (process != processes_.end()) {
      if (deleting) StopPod(name, process->second);
    } else if (deleting) {
      if (const Status removed = store_.Remove("Pod", name); !removed) {
        LogWarning(removed.error().message);
      }
    } else if (PhaseOf(pod) == "Pending") {
      StartPod(pod);
    }
  }
  // A pod that was deleted while it was being started has no object any more.
  for (auto& [name, process] : processes_) {
    if (!known.contains(name)) StopPod(name, process);
  }
}

void ProcessRuntime::StartPod(const OrderedJson& pod) {
  const auto name = pod["metadata"]["name"].get<std::string>();
  const auto pid = Launch(pod);
  if (!pid) {
    SetPodStatus(name, FailedStatus("StartError", pid.error().message));
    return;
  }
  Process process;
  process.pid = *pid;
  process.pidfd = static_cast<int>(syscall(SYS_pidfd_open, *pid, 0));
  processes_[name] = process;
  SetPodStatus(name, {{"phase", "Running"},
                      {"podIP", PodAddress(ReplicaOf(pod))},
                      {"startTime", FormatTime(clock_.WallNow())},
                      {"processId", *pid}});
}

Result<PodVolumes> ProcessRuntime::PrepareVolumes(const OrderedJson& pod) {
  PodVolumes volumes;
  if (!pod["spec"].contains("volumes")) return volumes;
  for (const OrderedJson& volume : pod["spec"]["volumes"]) {
    const std::string name = volume.value("name", "");
    if (volume.contains("persistentVolumeClaim")) {
      const std::string directory = options_.run_directory + "/claims/" +
                                    volume["persistentVolumeClaim"].value("claimName", name);
      RETURN_IF_ERROR(MakeDirectories(directory));
      volumes.directories[name] = directory;
    } else if (volume.contains("configMap")) {
      const std::string map_name = volume["configMap"].value("name", "");
      ASSIGN_OR_RETURN(const OrderedJson map, store_.Get("ConfigMap", map_name));
      const std::string directory = options_.run_directory + "/config/" + map_name;
      RETURN_IF_ERROR(MakeDirectories(directory));
      for (const auto& [key, text] : map["data"].items()) {
        RETURN_IF_ERROR(WriteFileAtomically(directory + "/" + key, text.get<std::string>()));
      }
      volumes.directories[name] = directory;
    }
  }
  return volumes;
}

std::map<std::string, std::string> ProcessRuntime::HostNames() {
  std::map<std::string, std::string> hosts;
  const auto pods = store_.List("Pod");
  if (!pods) return hosts;
  for (const OrderedJson& pod : *pods) {
    const std::string host =
        pod["spec"].value("hostname", "") + "." + pod["spec"].value("subdomain", "");
    hosts[host] = PodAddress(ReplicaOf(pod));
  }
  return hosts;
}

Result<pid_t> ProcessRuntime::Launch(const OrderedJson& pod) {
  const auto name = pod["metadata"]["name"].get<std::string>();
  ASSIGN_OR_RETURN(const PodVolumes volumes, PrepareVolumes(pod));
  const ResolveContext context{PodAddress(ReplicaOf(pod)), "local", HostNames()};
  ASSIGN_OR_RETURN(auto environment, ResolveEnvironment(pod, volumes, context));
  environment["EVERSTEP_DIE_WITH_PARENT"] = std::to_string(getpid());
  ASSIGN_OR_RETURN(std::vector<std::string> command, WorkerCommand(pod));
  if (command.empty()) return InvalidArgument("pod " + name + " has no command");
  if (const fs::path beside = fs::path(options_.program_directory) / command.front();
      fs::exists(beside)) {
    command.front() = beside.string();
  }
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  EnvironmentBlock block(environment);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::string log = options_.run_directory + "/logs/" + name + ".log";
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, defaults;
  sigemptyset(&none);
  sigfillset(&defaults);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), block.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return Internal("cannot start " + command.front() + ": " + ErrnoText(error));
  }
  return pid;
}

void ProcessRuntime::StopPod(const std::string& name, Process& process) {
  if (!process.kill_at) {
    kill(process.pid, SIGTERM);
    process.kill_at = clock_.Now() + std::chrono::duration_cast<Duration>(
                                         std::chrono::duration<double>(options_.grace_seconds));
  } else if (clock_.Now() >= *process.kill_at) {
    LogWarning("pod did not stop within its grace: killed", {{"pod", name}});
    kill(-process.pid, SIGKILL);
    process.kill_at = clock_.Now() + std::chrono::seconds(1);
  }
}

void ProcessRuntime::ReapEnded() {
  for (auto entry = processes_.begin(); entry != processes_.end();) {
    int status = 0;
    if (waitpid(entry->second.pid, &status, WNOHANG) != entry->second.pid) {
      ++entry;
      continue;
    }
    // What the pod's first process has left behind goes with it, as in a container.
    kill(-entry->second.pid, SIGKILL);
    close(entry->second.pidfd);
    SetPodStatus(entry->first, EndedStatus(status));
    entry = processes_.erase(entry);
  }
}

void ProcessRuntime::SetPodStatus(const std::string& name, const OrderedJson& status) {
  constexpr int kAttempts = 10;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto pod = store_.Get("Pod", name);
    if (!pod) return;  // deleted meanwhile
    (*pod)["status"] = status;
    const auto written = store_.UpdateStatus(std::move(*pod));
    if (written) return;
    if (written.error().code != ErrorCode::kConflict) {
      LogWarning(written.error().message, {{"pod", name}});
      return;
    }
  }
}

}  // namespace everstep
