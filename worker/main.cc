// The everstep-worker program: one training process.
//
// Configured by its environment (EVERSTEP_*, RANK, WORLD_SIZE; see docs/ARCHITECTURE.md). Without a
// supervisor it trains alone and hosts every logical rank: the same bits, one process.
//
//   everstep-worker [training file]     the file overrides EVERSTEP_TRAIN_FILE
//
// Exit codes: 0 done; 1 failed, a restart may help; 2 bad input; 3 training diverged; 143 stopped.

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/log.h"
#include "worker/config/train_config.h"
#include "worker/hub/hub.h"
#include "worker/model/causal_lm.h"
#include "worker/output_directory.h"
#include "worker/recovery/control.h"
#include "worker/trainer.h"

namespace everstep {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitBadInput = 2;
constexpr int kExitDiverged = 3;
constexpr int kExitStopped = 143;

std::string Variable(const char* name, const std::string& fallback = "") {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : value;
}

int Number(const char* name, int fallback) {
  const std::string text = Variable(name);
  return text.empty() ? fallback : std::max(0, std::atoi(text.c_str()));
}

struct Environment {
  std::string train_file;
  std::string checkpoint_path;
  std::string job;
  std::string run;  // differs between two jobs of one name, one after the other
  int rank = 0;
  int logical_world = 1;
  int threads = 1;
  // The manifest's wishes for checkpoints, before those of the training file. 0: none.
  int save_steps = 0, save_total_limit = 0, milestone_steps = 0;
  bool first_start = true;
};

Environment ReadEnvironment(int argc, char** argv) {
  Environment environment;
  environment.train_file = argc > 1 ? argv[1] : Variable("EVERSTEP_TRAIN_FILE");
  environment.checkpoint_path = Variable("EVERSTEP_CHECKPOINT_PATH");
  environment.job = Variable("EVERSTEP_JOB");
  environment.run = Variable("EVERSTEP_RUN", environment.job);
  environment.rank = Number("RANK", 0);
  environment.logical_world = std::max(1, Number("WORLD_SIZE", 1));
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  environment.threads = std::max(1, Number("EVERSTEP_THREADS", cores));
  environment.save_steps = Number("EVERSTEP_CHECKPOINT_INTERVAL_STEPS", 0);
  environment.save_total_limit = Number("EVERSTEP_CHECKPOINT_KEEP_LAST", 0);
  environment.milestone_steps = Number("EVERSTEP_CHECKPOINT_MILESTONE_STEPS", 0);
  environment.first_start = environment.job.empty() || Variable("EVERSTEP_FIRST_START") == "1";
  return environment;
}

// Sends to the supervisor through the control channel.
class ControlReporter final : public Reporter {
 public:
  explicit ControlReporter(ControlChannel& channel) : channel_(channel) {}
  void Report(const wire::Message& message) override {
    if (const Status sent = channel_.Send(message); !sent) LogDebug(sent.error().message);
  }

 private:
  ControlChannel& channel_;
};

int ExitCodeOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kDataLoss:
      return kExitBadInput;
    case ErrorCode::kFailedPrecondition:
      return kExitDiverged;
    default:
      return kExitFailed;
  }
}

// Takes SIGTERM and SIGINT off all threads: one of its own turns them into a request to stop.
void StopOnSignals(MembershipMailbox& mailbox) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, &mailbox] {
    int signal = 0;
    while (sigwait(&signals, &signal) == 0) mailbox.RequestStop();
  }).detach();
}

wire::Membership Alone(const Environment& environment, const std::string& endpoint) {
  wire::Membership membership;
  membership.generation = 1;
  wire::Member member;
  member.rank = environment.rank;
  member.endpoint = endpoint;
  for (int i = 0; i < environment.logical_world; ++i) member.logical_ranks.push_back(i);
  membership.members.push_back(member);
  return membership;
}

HubOptions HubOptionsOf(const ModelArguments& arguments) {
  HubOptions options = HubOptionsFromEnvironment(
      [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
      },
      {.cache_dir = arguments.cache_dir,
       .token = arguments.hf_hub_token,
       .revision = arguments.model_revision});
  options.progress = [](const std::string& line) { LogInfo(line); };
  return options;
}

Result<std::unique_ptr<Workload>> LoadWorkload(const Environment& environment, const Clock& clock) {
  if (environment.train_file.empty()) {
    return InvalidArgument("no training file: name one, or set EVERSTEP_TRAIN_FILE");
  }
  ASSIGN_OR_RETURN(TrainConfig config, LoadTrainConfig(environment.train_file));
  if (environment.save_steps > 0) {
    config.training.save_strategy = IntervalStrategy::kSteps;
    config.training.save_steps = environment.save_steps;
  }
  if (environment.save_total_limit > 0) {
    config.training.save_total_limit = environment.save_total_limit;
  }
  WorkloadOptions options;
  options.output_directory =
      ResolveOutputDirectory(config.training.output_dir, environment.checkpoint_path);
  RETURN_IF_ERROR(PrepareOutputDirectory(
      options.output_directory, {.overwrite = config.training.overwrite_output_dir,
                                 .first_start = environment.first_start,
                                 .resumes_from = !config.training.resume_from_checkpoint.empty()}));
  ASSIGN_OR_RETURN(options.model_directory,
                   ResolveModel(config.model.model_name_or_path, HubOptionsOf(config.model)));
  options.logical_world = environment.logical_world;
  options.threads = environment.threads;
  options.milestone_steps = environment.milestone_steps;
  options.today = clock.WallNow();
  if (environment.rank == 0) {
    for (const std::string& warning : config.warnings) LogWarning(warning);
    for (const auto& [name, value] : SettingsTable(config)) LogInfo(name + " = " + value);
  }
  return Workload::Load(std::move(config), options);
}

Result<Ending> Train(const Environment& environment, Reporter& reporter, HeartbeatWriter* heartbeat,
                     MembershipMailbox& mailbox, bool alone) {
  const SystemClock clock;
  if (heartbeat != nullptr) heartbeat->SetProgress(0, 0, "load");
  ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload, LoadWorkload(environment, clock));
  ASSIGN_OR_RETURN(const auto fabric, TcpFabric::Create(TcpFabricOptionsFromEnvironment()));
  Trainer trainer({.workload = *workload,
                   .fabric = *fabric,
                   .mailbox = mailbox,
                   .reporter = reporter,
                   .heartbeat = heartbeat,
                   .clock = clock,
                   .artifacts = {.rank = environment.rank,
                                 .first_start = environment.first_start,
                                 .run = environment.run},
                   .rank = environment.rank});
  if (alone) {
    mailbox.Deliver(Alone(environment, fabric->endpoint()));
  } else {
    wire::Ready ready;
    ready.rank = environment.rank;
    ready.endpoint = fabric->endpoint();
    reporter.Report(ready);
  }
  return trainer.Run();
}

int Conclude(const Environment& environment, Reporter& reporter, const Result<Ending>& ending) {
  if (ending) return *ending == Ending::kFinished ? kExitDone : kExitStopped;
  const int code = ExitCodeOf(ending.error());
  std::fprintf(stderr, "everstep-worker: %s\n", ending.error().message.c_str());
  if (code != kExitFailed) {
    reporter.Report(wire::Fatal{environment.rank, ending.error().message});
  }
  return code;
}

int Main(int argc, char** argv) {
  ConfigureLog(LogOptionsFromEnvironment("worker"));
  ConfigureAllocator();
  const Environment environment = ReadEnvironment(argc, argv);
  at::set_num_threads(environment.threads);
  at::set_num_interop_threads(1);
  MembershipMailbox mailbox;
  StopOnSignals(mailbox);

  auto heartbeat = HeartbeatWriter::FromEnvironment();
  auto channel = ControlChannel::FromEnvironment(
      {.on_message =
           [&](const wire::Message& message) {
             if (const auto* membership = std::get_if<wire::Membership>(&message)) {
               mailbox.Deliver(*membership);
             } else if (std::holds_alternative<wire::Stop>(message)) {
               mailbox.RequestStop();
             }
           },
       .on_closed = [&](const Error&) { mailbox.Close(); }});
  if (!heartbeat || !channel) {
    std::fprintf(stderr, "everstep-worker: %s\n",
                 (!heartbeat ? heartbeat.error() : channel.error()).message.c_str());
    return kExitFailed;
  }
  const bool alone = *channel == nullptr;
  LogReporter log_reporter;
  std::unique_ptr<ControlReporter> control;
  if (!alone) control = std::make_unique<ControlReporter>(**channel);
  Reporter& reporter = alone ? static_cast<Reporter&>(log_reporter) : *control;
  const auto ending = Train(environment, reporter, heartbeat->get(), mailbox, alone);
  const int code = Conclude(environment, reporter, ending);
  if (!alone) {
    if (const Status flushed = (*channel)->Flush(std::chrono::seconds(1)); !flushed) {
      LogDebug(flushed.error().message);
    }
  }
  std::fflush(nullptr);
  // Threads that wait for signals or own large memory need no orderly end.
  std::_Exit(code);
}

}  // namespace
}  // namespace everstep

int main(int argc, char** argv) { return everstep::Main(argc, argv); }
