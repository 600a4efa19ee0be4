// The training run of one process, from the first membership to the saved model.
//
// Run() reads as the outline: wait for a membership, regroup, train until the job is done or the
// membership changes. TrainStep() is a transaction: compute the shares, reduce and vote, commit.
// A member's death surfaces as an error of the communicator and leads back to Run()'s loop with
// the local gradient sums intact.
#ifndef EVERSTEP_WORKER_TRAINER_H_
#define EVERSTEP_WORKER_TRAINER_H_

#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "common/wire.h"
#include "worker/artifacts.h"
#include "worker/comm/communicator.h"
#include "worker/comm/tcp_fabric.h"
#include "worker/evaluator.h"
#include "worker/parallel/ordered_reduce.h"
#include "worker/parallel/step_gradients.h"
#include "worker/parallel/training_state.h"
#include "worker/parallel/vote.h"
#include "worker/recovery/heartbeat.h"
#include "worker/recovery/membership_mailbox.h"
#include "worker/reporter.h"
#include "worker/workload.h"

namespace everstep {

// How a run, or a stay in one generation, ended without an error.
enum class Ending {
  kFinished,  // trained to the end, results saved
  kStopped,   // asked to stop; a checkpoint of the last step is saved
  kHandover,  // the members agreed to switch to a planned membership
};

class Trainer {
 public:
  // Everything is borrowed and outlives the trainer.
  struct Context {
    Workload& workload;
    TcpFabric& fabric;
    MembershipMailbox& mailbox;
    Reporter& reporter;
    HeartbeatWriter* heartbeat = nullptr;  // null without a supervisor
    const Clock& clock;
    Artifacts::Options artifacts;
    int rank = 0;
  };
  explicit Trainer(const Context& context);

  // kFinished or kStopped. Errors are final: kInvalidArgument and kFailedPrecondition for what a
  // restart does not cure, others for what it may.
  Result<Ending> Run();

 private:
  Result<Ending> TrainAsMember(const wire::Membership& membership);
  Status Regroup(const wire::Membership& membership);
  Status StartFromCheckpoint();

  Result<Verdict> TrainStep();
  Status ComputeShares();
  struct Reduced {
    Verdict verdict;
    double divisor = 1;  // of the summed losses and gradients
    int64_t padded_tokens = 0;
    double gradient_norm = 0;
  };
  Result<Reduced> ReduceAndVote();
  Status Commit(const Reduced& reduced);

  // What belongs to the end of the completed step: log line, evaluation, checkpoint. All or
  // nothing of it enters the state, so that it can be done again after an interruption.
  Status FinishBoundary();
  Status EvaluateAll(std::vector<LogRecord>& records, Metrics& metrics);
  void NoteBest(const Metrics& metrics);
  Status GoBackToBest();
  LogRecord RecordNow() const;
  Result<Ending> FinishTraining();
  LogRecord FinalRecord(Metrics& metrics) const;
  Result<Ending> StopTraining();

  std::span<float> ReducedVector();
  bool is_lead() const;
  const wire::Member& self() const;
  void SetPhase(const char* phase);
  void ReportBroken(const Error& error);

  Context context_;
  Workload& workload_;
  TrainingState& state_;
  StepGradients gradients_;
  torch::Tensor reduced_;  // [layout.size]: the step's gradient; undefined until there are others
  Artifacts artifacts_;
  wire::Membership membership_;
  std::unique_ptr<Communicator> communicator_;
  std::stop_source stop_;  // ends the generation's connecting and exchanging
  OrderedReducer reducer_;
  std::vector<double> chunk_norms_;
  TimePoint step_started_;
  double last_gradient_norm_ = 0;
  double last_loss_ = 0;
  double last_learning_rate_ = 0;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_TRAINER_H_
