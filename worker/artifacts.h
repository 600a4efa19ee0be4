// What a run leaves on the volume: checkpoints, logs, the final model. Written by the lead alone;
// read by everybody when a run starts from a checkpoint.
#ifndef EVERSTEP_WORKER_ARTIFACTS_H_
#define EVERSTEP_WORKER_ARTIFACTS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/result.h"
#include "worker/checkpoint/checkpoint_saver.h"
#include "worker/checkpoint/checkpoint_store.h"
#include "worker/comm/communicator.h"
#include "worker/evaluator.h"
#include "worker/parallel/training_state.h"
#include "worker/report/results.h"
#include "worker/report/trainer_log.h"
#include "worker/reporter.h"
#include "worker/workload.h"

namespace everstep {

class Artifacts {
 public:
  struct Options {
    int rank = 0;
    // The job's first start: only then does overwrite_output_dir start from zero, and only then
    // may resume_from_checkpoint bring in a run of another shape.
    bool first_start = true;
    std::string run;  // the job's identity
  };

  // `workload` and `reporter` are borrowed.
  Artifacts(Workload& workload, Reporter& reporter, Options options);

  // Before a lead of `generation` writes: raises the fence and makes the log file say what the
  // state's history says.
  Status TakeOver(TrainingState& state, uint64_t generation);

  // Collective; the first member decides. The checkpoint that a run without any state starts
  // from, or "" to start from the beginning. kFailedPrecondition when a checkpoint of
  // the durable step was announced and no valid one is left.
  Result<std::string> ChooseCheckpoint(Communicator& communicator,
                                       const wire::Membership& membership);
  Status Load(const std::string& path, TrainingState& state);
  // The parameters alone, from this run's checkpoint of `step`.
  Status LoadParameters(int64_t step, TrainingState& state);

  // A failure to append is a warning: training is worth more than a log line.
  void AppendLog(const LogRecord& record);

  // Copies the state and writes it as checkpoint-<step> in the background. A failure is reported
  // as a warning and training goes on.
  void Save(TrainingState& state, uint64_t generation);
  // Returns when what was handed to Save is written; an error when the newest one failed.
  Status WaitForSave();

  // Model or adapter, tokenizer, results, plots, into the output directory itself.
  Status SaveFinal(TrainingState& state, const Metrics& train, const Metrics& evaluation);

 private:
  FileSet ModelFiles(TrainingState& state, const std::shared_ptr<const std::vector<float>>& copy);
  Status PrepareTokenizerFiles();
  std::string TrainerState(TrainingState& state, bool should_save) const;
  RunShape Shape() const;
  Result<std::string> DecideCheckpoint(const wire::Membership& membership);
  void OnSaved(const SaveOutcome& outcome);

  Workload& workload_;
  Reporter& reporter_;
  const Options options_;
  CheckpointStore store_;
  TrainerLog log_;
  std::vector<TextFile> tokenizer_files_;  // made once, by a lead
  std::mutex mutex_;
  uint64_t generation_ = 0;
  Status last_save_;
  std::unique_ptr<CheckpointSaver> saver_;  // last: its thread uses the rest
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_ARTIFACTS_H_
