#include "operator/cli/job_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "common/files.h"
#include "operator/api/names.h"
#include "operator/core/reconcile.h"

namespace everstep {
namespace {

// What the final weights depend on: it must not change under an unfinished job.
Status CheckUnchanged(const TrainingJob& before, const TrainingJob& now) {
  const std::string hint =
      " was changed, but the job is unfinished and its results depend on it: change it back, "
      "give the job another name, or start over with --again";
  if (before.spec.world_size() != now.spec.world_size()) {
    return MakeError(ErrorCode::kFailedPrecondition,
                     "spec.replicas (with processesPerReplica)" + hint);
  }
  if (before.spec.threads_per_process != now.spec.threads_per_process) {
    return MakeError(ErrorCode::kFailedPrecondition, "spec.threadsPerProcess" + hint);
  }
  // Compared without the order of the keys, which means nothing.
  if (Json(before.spec.train) != Json(now.spec.train)) {
    return MakeError(ErrorCode::kFailedPrecondition, "spec.train" + hint);
  }
  return {};
}

// A failed job is tried again: what made it fail is forgotten, what it achieved is not.
void ForgetFailure(OrderedJson& status) {
  for (const char* key : {"failure", "restarts", "message", "completionTime", "chargedPods",
                          "lostPods", "notBefore"}) {
    status.erase(key);
  }
  status["phase"] = "Pending";
  status.erase("startUnixSeconds");
}

// A claim is a directory here, which everybody can use. Nothing removes what a run has to show.
Status PrepareObjects(const TrainingJob& job, OrderedJson& object, ObjectStore& store) {
  object["metadata"].erase("namespace");  // there are none here
  object["spec"].erase("ttlSecondsAfterFinished");
  const OrderedJson claim = {{"apiVersion", "v1"},
                             {"kind", "PersistentVolumeClaim"},
                             {"metadata", {{"name", ClaimName(job)}}},
                             {"spec", {{"accessModes", {"ReadWriteMany"}}}}};
  const auto created = store.Create(claim);
  if (!created && created.error().code != ErrorCode::kAlreadyExists) {
    return tl::unexpected(created.error());
  }
  return {};
}

}  // namespace

Result<RunLock> RunLock::Take(const std::string& run_directory) {
  if (const Status made = MakeDirectories(run_directory); !made) {
    return MakeError(made.error().code, made.error().message + ": choose another --run-dir");
  }
  const std::string path = run_directory + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return InvalidArgument(path + ": cannot be written: " + ErrnoText(errno) +
                           ": choose another --run-dir");
  }
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const std::string holder = ReadFile(path).value_or("");  // empty until it has written it
    close(fd);
    return MakeError(ErrorCode::kFailedPrecondition,
                     run_directory + ": the job is running already (process " +
                         (holder.empty() ? "unknown" : holder) + ")");
  }
  const std::string pid = std::to_string(getpid());
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    const int error = errno;
    close(fd);
    return Internal(path + ": cannot be written: " + ErrnoText(error));
  }
  return RunLock(fd);
}

RunLock::~RunLock() {
  if (fd_ >= 0) close(fd_);
}

Result<bool> PrepareJob(const Manifest& manifest, ObjectStore& store) {
  const std::string& name = manifest.job.name;
  // Pods of an earlier run are history: the next incarnations are counted on from status.
  ASSIGN_OR_RETURN(const std::vector<OrderedJson> pods, store.List("Pod"));
  for (const OrderedJson& pod : pods) {
    RETURN_IF_ERROR(store.Remove("Pod", pod["metadata"]["name"].get<std::string>()));
  }
  auto existing = store.Get(names::kKind, name);
  if (!existing) {
    OrderedJson object = manifest.object;
    object.erase("status");
    RETURN_IF_ERROR(PrepareObjects(manifest.job, object, store));
    const auto created = store.Create(std::move(object));
    if (!created) return tl::unexpected(created.error());
    return true;
  }
  OrderedJson status = existing->value("status", OrderedJson::object());
  if (status.value("phase", "") == "Succeeded") return false;
  ASSIGN_OR_RETURN(const TrainingJob before, TrainingJobFromJson(*existing));
  const bool started = status.contains("checkpoint") || status.contains("progress");
  if (started) {
    RETURN_IF_ERROR(CheckUnchanged(before, manifest.job));
  } else {
    // Nothing was trained yet: the new manifest decides everything.
    RETURN_IF_ERROR(store.Remove("ConfigMap", names::TrainConfigMap(name)));
    status.erase("logicalWorld");
    status.erase("threadsPerProcess");
  }
  OrderedJson object = *existing;
  object["spec"] = manifest.object["spec"];
  RETURN_IF_ERROR(PrepareObjects(manifest.job, object, store));
  ASSIGN_OR_RETURN(object, store.Update(std::move(object)));
  ForgetFailure(status);
  object["status"] = status;
  ASSIGN_OR_RETURN(object, store.UpdateStatus(std::move(object)));
  return true;
}

}  // namespace everstep
