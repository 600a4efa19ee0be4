// The folder of a job: who runs it, and what an earlier run left in its store.
#ifndef EVERSTEP_OPERATOR_CLI_JOB_FILES_H_
#define EVERSTEP_OPERATOR_CLI_JOB_FILES_H_

#include <string>

#include "common/result.h"
#include "operator/cli/manifest.h"
#include "operator/local/object_store.h"

namespace everstep {

// Held while `everstep run` works on the folder; freed by the kernel when the process ends.
class RunLock {
 public:
  // kFailedPrecondition names the process that holds it.
  static Result<RunLock> Take(const std::string& run_directory);
  RunLock(RunLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// Brings the manifest's job into the store: creates it, or continues the unfinished one. False when
// it has succeeded already. kFailedPrecondition when it is unfinished and the manifest changes what
// its results depend on.
Result<bool> PrepareJob(const Manifest& manifest, ObjectStore& store);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CLI_JOB_FILES_H_
