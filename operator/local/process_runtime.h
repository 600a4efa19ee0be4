// The embedded default's kubelet: runs the pods of an ObjectStore as processes of this machine.
#ifndef EVERSTEP_OPERATOR_LOCAL_PROCESS_RUNTIME_H_
#define EVERSTEP_OPERATOR_LOCAL_PROCESS_RUNTIME_H_

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "common/result.h"
#include "operator/local/object_store.h"
#include "operator/local/pod_environment.h"

namespace everstep {

// A pod is one process (its worker container) in a process group of its own, with its output in
// logs/<pod>.log. A claim is a directory under claims/, a ConfigMap one under config/. Deleting a
// pod is SIGTERM, and SIGKILL after its grace. The processes die with this one.
//
// One thread does everything; it lives from Start to destruction, which kills what still runs.
class ProcessRuntime {
 public:
  struct Options {
    std::string run_directory;      // of the job: claims/, config/ and logs/ are made in it
    std::string program_directory;  // where everstep-supervisor and everstep-worker are
    double grace_seconds = 30;
  };

  // Pods that an earlier run left are marked Failed ("Lost") before it returns. `store` and `clock`
  // are borrowed.
  static Result<std::unique_ptr<ProcessRuntime>> Start(const Options& options, ObjectStore& store,
                                                       const Clock& clock);
  ~ProcessRuntime();
  ProcessRuntime(const ProcessRuntime&) = delete;
  ProcessRuntime& operator=(const ProcessRuntime&) = delete;

 private:
  struct Process {
    pid_t pid = -1;
    int pidfd = -1;
    std::optional<TimePoint> kill_at;  // after SIGTERM
  };

  ProcessRuntime(Options options, ObjectStore& store, const Clock& clock, int wake_fd);
  Status MarkLostPods();
  void Run();
  void WaitForSomething();
  void SyncPods();
  void StartPod(const OrderedJson& pod);
  Result<pid_t> Launch(const OrderedJson& pod);
  Result<PodVolumes> PrepareVolumes(const OrderedJson& pod);
  std::map<std::string, std::string> HostNames();
  void StopPod(const std::string& name, Process& process);
  void ReapEnded();
  void SetPodStatus(const std::string& name, const OrderedJson& status);
  void Wake();

  const Options options_;
  ObjectStore& store_;
  const Clock& clock_;
  const int wake_fd_;                         // eventfd
  std::map<std::string, Process> processes_;  // by pod name; the thread's own
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_LOCAL_PROCESS_RUNTIME_H_
