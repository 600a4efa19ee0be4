#include "operator/cli/run_command.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>

#include "common/log.h"
#include "common/strings.h"
#include "operator/api/names.h"
#include "operator/cli/display.h"
#include "operator/cli/job_files.h"
#include "operator/cli/manifest.h"
#include "operator/local/process_runtime.h"
#include "operator/shell/controller.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

int Complain(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return error.code == ErrorCode::kInternal ? kExitFailed : kExitBadInput;
}

std::string RandomToken() {
  std::random_device random;
  char text[36];
  std::snprintf(text, sizeof(text), "%08x%08x%08x%08x", random(), random(), random(), random());
  return text;
}

std::string ProgramDirectory() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().string();
}

DisplayMode ModeOf(const RunOptions& options) {
  if (options.json) return DisplayMode::kJson;
  if (options.quiet) return DisplayMode::kQuiet;
  return isatty(STDERR_FILENO) != 0 ? DisplayMode::kTerminal : DisplayMode::kPlain;
}

// Signals are taken by the main thread alone, one by one, between looks at the job.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

Status SuspendJob(ObjectStore& store, const std::string& name) {
  constexpr int kAttempts = 20;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ASSIGN_OR_RETURN(OrderedJson object, store.Get(names::kKind, name));
    object["spec"]["suspend"] = true;
    const auto updated = store.Update(std::move(object));
    if (updated || updated.error().code != ErrorCode::kConflict) {
      return updated ? Status{} : Status(tl::unexpected(updated.error()));
    }
  }
  return MakeError(ErrorCode::kConflict, "the job keeps changing");
}

bool AnyPod(ObjectStore& store) {
  const auto pods = store.List("Pod");
  if (!pods) return false;
  for (const OrderedJson& pod : *pods) {
    const std::string phase =
        pod.contains("status") ? pod["status"].value("phase", "Pending") : "Pending";
    if (phase == "Pending" || phase == "Running") return true;
  }
  return false;
}

// Waits for the job's end; returns the exit code. The first signal suspends the job, which saves a
// checkpoint; a second one ends at once.
int Await(ObjectStore& store, const std::string& name, const sigset_t& signals, Display& display,
          const std::string& run_directory) {
  constexpr timespec kLook{0, 50'000'000};
  bool interrupted = false;
  while (true) {
    const int signal = sigtimedwait(&signals, nullptr, &kLook);
    if (signal > 0 && interrupted) return kExitInterrupted;
    if (signal > 0) {
      interrupted = true;
      display.Line("stopping: saves a checkpoint; once more to stop at once");
      if (const Status suspended = SuspendJob(store, name); !suspended) {
        return Complain(suspended.error());
      }
    }
    const auto object = store.Get(names::kKind, name);
    if (!object) return Complain(object.error());
    const OrderedJson status = object->value("status", OrderedJson());
    if (IsTerminal(status) && !AnyPod(store)) {
      display.ShowResult(name, status, run_directory);
      return status["phase"] == "Succeeded" ? kExitSucceeded : kExitFailed;
    }
    if (interrupted && !AnyPod(store)) {
      display.Line(name + " is stopped; the same command continues it");
      return kExitInterrupted;
    }
  }
}

void ShowStart(Display& display, const Manifest& manifest, const std::string& run_directory) {
  const TrainingJobSpec& spec = manifest.job.spec;
  display.Line("job " + manifest.job.name + ": " + std::to_string(spec.world_size()) +
               (spec.world_size() == 1 ? " rank" : " ranks") + " on this machine, in " +
               run_directory);
  for (const std::string& warning : manifest.warnings) display.Line("warning: " + warning);
}

}  // namespace

int RunCommand(const RunOptions& options) {
  const auto manifest = LoadManifest(options.manifest);
  if (!manifest) return Complain(manifest.error());
  const std::string& name = manifest->job.name;
  const std::string run_directory =
      (fs::absolute(options.run_directory) / name).lexically_normal().string();
  const auto lock = RunLock::Take(run_directory);
  if (!lock) return Complain(lock.error());
  if (options.again) {
    std::error_code ignored;
    fs::remove_all(run_directory + "/state", ignored);
  }
  const SystemClock clock;
  auto store = ObjectStore::Open(run_directory + "/state", clock);
  if (!store) return Complain(store.error());
  Display display(ModeOf(options));
  const auto prepared = PrepareJob(*manifest, **store);
  if (!prepared) return Complain(prepared.error());
  if (!*prepared) {
    display.Line(name + " has succeeded already; --again starts it over");
    return kExitSucceeded;
  }
  ShowStart(display, *manifest, run_directory);
  const sigset_t signals = BlockSignals();

  auto runtime = ProcessRuntime::Start(
      {.run_directory = run_directory, .program_directory = ProgramDirectory()}, **store, clock);
  if (!runtime) return Complain(runtime.error());
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  Controller controller({.pod_context = {.token = RandomToken()},
                         .default_threads = std::max(1, cores / manifest->job.spec.world_size())},
                        **store, clock, display);
  auto server =
      RendezvousServer::Start({.port = static_cast<uint16_t>(options.rendezvous_port)}, controller);
  if (!server) return Complain(server.error());
  controller.Start(**server, "127.0.0.1:" + std::to_string((*server)->port()));
  const int exit_code = Await(**store, name, signals, display, run_directory);
  controller.Stop();
  server->reset();
  return exit_code;
}

}  // namespace everstep
