#include "worker/trainer.h"

#include <cmath>
#include <utility>

#include "common/log.h"
#include "worker/parallel/apply_update.h"
#include "worker/parallel/state_agreement.h"

namespace everstep {
namespace {

// How long a member waits for the others of its generation. Longer than any share of work that
// they may finish first; a death is told by rendezvous long before.
constexpr std::chrono::minutes kConnectTimeout{10};

// Errors that mean "this generation is over", not "this run is over".
bool EndsGeneration(const Error& error) {
  return error.code == ErrorCode::kAborted || error.code == ErrorCode::kUnavailable ||
         error.code == ErrorCode::kDeadlineExceeded;
}

}  // namespace

Trainer::Trainer(const Context& context)
    : context_(context),
      workload_(context.workload),
      state_(context.workload.state()),
      gradients_(state_.layout().size),
      artifacts_(context.workload, context.reporter, context.artifacts),
      chunk_norms_(static_cast<size_t>(NormChunks(state_.layout().size))) {}

bool Trainer::is_lead() const {
  for (const wire::Member& member : membership_.members) {
    if (!member.newcomer) return member.rank == context_.rank;
  }
  return membership_.members.front().rank == context_.rank;
}

const wire::Member& Trainer::self() const {
  return membership_.members[static_cast<size_t>(communicator_->rank())];
}

void Trainer::SetPhase(const char* phase) {
  if (context_.heartbeat != nullptr) {
    context_.heartbeat->SetProgress(membership_.generation, state_.counters().step, phase);
  }
}

Result<Ending> Trainer::Run() {
  uint64_t generation = 0;
  bool after_failure = false;
  while (true) {
    SetPhase("wait");
    auto membership = context_.mailbox.AwaitNewer(generation, after_failure);
    if (!membership) {
      if (context_.mailbox.stop_requested()) return Ending::kStopped;
      return tl::unexpected(membership.error());
    }
    generation = membership->generation;
    Result<Ending> ending = TrainAsMember(*membership);
    if (!ending && !EndsGeneration(ending.error())) return ending;
    if (ending && *ending != Ending::kHandover) return ending;
    after_failure = !ending.has_value();
    if (after_failure) ReportBroken(ending.error());
    communicator_.reset();
  }
}

Result<Ending> Trainer::TrainAsMember(const wire::Membership& membership) {
  RETURN_IF_ERROR(Regroup(membership));
  if (!state_.counters().boundary_done) RETURN_IF_ERROR(FinishBoundary());
  while (state_.counters().step < workload_.order().max_steps()) {
    ASSIGN_OR_RETURN(const Verdict verdict, TrainStep());
    RETURN_IF_ERROR(FinishBoundary());
    if (verdict.stop) return StopTraining();
    if (verdict.switch_to_generation != 0) {
      // Nobody leaves before everybody has what the step's last exchange brought.
      RETURN_IF_ERROR(communicator_->Barrier());
      return Ending::kHandover;
    }
  }
  return FinishTraining();
}

Status Trainer::Regroup(const wire::Membership& membership) {
  membership_ = membership;
  SetPhase("regroup");
  stop_ = std::stop_source();
  context_.mailbox.SetInterrupt([stop = stop_]() mutable { stop.request_stop(); });
  if (context_.mailbox.Superseded(membership.generation)) stop_.request_stop();
  ASSIGN_OR_RETURN(communicator_, context_.fabric.Connect(membership, context_.rank,
                                                          context_.clock.Now() + kConnectTimeout,
                                                          stop_.get_token()));
  gradients_.KeepOnly(self().logical_ranks);
  ASSIGN_OR_RETURN(const AgreedState agreed,
                   AgreeOnState(*communicator_, workload_.fingerprint(), state_));
  if (agreed.nobody) RETURN_IF_ERROR(StartFromCheckpoint());
  if (agreed.received || agreed.nobody) workload_.model().AfterUpdate();
  if (is_lead()) RETURN_IF_ERROR(artifacts_.TakeOver(state_, membership_.generation));
  context_.reporter.Report(
      wire::Regrouped{context_.rank, membership_.generation, state_.counters().step});
  LogInfo("regrouped", {{"generation", membership_.generation},
                        {"members", membership_.members.size()},
                        {"step", state_.counters().step},
                        {"fed_by_peer", agreed.received}});
  return {};
}

Status Trainer::StartFromCheckpoint() {
  SetPhase("load");
  ASSIGN_OR_RETURN(const std::string path,
                   artifacts_.ChooseCheckpoint(*communicator_, membership_));
  return artifacts_.Load(path, state_);
}

Result<Verdict> Trainer::TrainStep() {
  step_started_ = context_.clock.Now();
  gradients_.BeginStep(state_.counters().step);
  RETURN_IF_ERROR(ComputeShares());
  ASSIGN_OR_RETURN(const Reduced reduced, ReduceAndVote());
  RETURN_IF_ERROR(Commit(reduced));
  return reduced.verdict;
}

Status Trainer::ComputeShares() {
  SetPhase("compute");
  const int64_t step = state_.counters().step;
  for (int logical_rank : self().logical_ranks) {
    const auto micro_batches = workload_.MicroBatches(step, logical_rank);
    for (auto i = gradients_.MicroBatchesDone(logical_rank);
         i < static_cast<int64_t>(micro_batches.size()); ++i) {
      if (context_.mailbox.Superseded(membership_.generation)) {
        return MakeError(ErrorCode::kAborted, "the generation is over");
      }
      const MicroBatch& batch = micro_batches[static_cast<size_t>(i)];
      const MicroBatchKey key{workload_.seed(), step, logical_rank, static_cast<int>(i)};
      ASSIGN_OR_RETURN(
          const PassResult pass,
          workload_.model().ForwardBackward(batch, key, gradients_.Accumulator(logical_rank)));
      gradients_.AddMicroBatch(logical_rank, pass.loss_sum, InputTokens(batch));
    }
  }
  return {};
}

Result<Trainer::Reduced> Trainer::ReduceAndVote() {
  SetPhase("reduce");
  const int64_t step = state_.counters().step;
  const int world = workload_.logical_world();
  Vote vote{step,
            context_.mailbox.PendingPlanned(membership_.generation),
            context_.mailbox.stop_requested(),
            {}};
  std::vector<LogicalGradient> local;
  for (int logical_rank : self().logical_ranks) {
    const ShareResult& share = gradients_.Share(logical_rank);
    vote.shares.push_back({logical_rank, 0, share.loss_sum, share.input_tokens});
    local.push_back({logical_rank, gradients_.Gradient(logical_rank)});
  }
  Reduced reduced;
  const Workload::StepTokens tokens = workload_.TokensOf(step);
  reduced.padded_tokens = tokens.padded;
  // What the summed losses and gradients are divided by. A step whose examples have no token to
  // train on (all were cut off) changes nothing; it is no 0 / 0.
  reduced.divisor = workload_.model().normalization() == LossNormalization::kGlobalTokens
                        ? static_cast<double>(std::max<int64_t>(1, tokens.labels))
                        : static_cast<double>(world);
  const std::vector<std::byte> mine = EncodeVote(vote, world);
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(communicator_->size()));
  RETURN_IF_ERROR(reducer_.Reduce(
      *communicator_, membership_,
      {.local = local, .scale = static_cast<float>(1.0 / reduced.divisor), .vote = mine},
      {.reduced = ReducedVector(), .chunk_norms = chunk_norms_, .votes = all}));
  std::vector<Vote> votes;
  for (size_t at = 0; at < all.size(); at += mine.size()) {
    ASSIGN_OR_RETURN(Vote decoded, DecodeVote(std::span(all).subspan(at, mine.size())));
    votes.push_back(std::move(decoded));
  }
  ASSIGN_OR_RETURN(reduced.verdict, CountVotes(votes, step, world));
  reduced.gradient_norm = GlobalNorm(chunk_norms_);
  return reduced;
}

// A member that is alone needs no second vector: between it and the step's commit is nobody who
// could die.
std::span<float> Trainer::ReducedVector() {
  if (communicator_->size() == 1) return gradients_.Overwrite(self().logical_ranks.front());
  if (!reduced_.defined()) reduced_ = torch::empty({state_.layout().size}, torch::kFloat32);
  return {reduced_.data_ptr<float>(), static_cast<size_t>(reduced_.numel())};
}

Status Trainer::Commit(const Reduced& reduced) {
  SetPhase("apply");
  TrainingCounters& counters = state_.counters();
  const double loss = reduced.verdict.loss_sum / reduced.divisor;
  if (!std::isfinite(loss) || !std::isfinite(reduced.gradient_norm)) {
    return MakeError(ErrorCode::kFailedPrecondition,
                     "step " + std::to_string(counters.step + 1) +
                         ": the loss or the gradient norm is not a finite number (loss " +
                         std::to_string(loss) +
                         "): lower learning_rate or check the data; the "
                         "last checkpoint is kept");
  }
  last_loss_ = loss;
  last_gradient_norm_ = reduced.gradient_norm;
  last_learning_rate_ = workload_.schedule().LearningRate(counters.step);
  ApplyUpdate(workload_.config().training,
              {.gradient = ReducedVector(),
               .gradient_norm = reduced.gradient_norm,
               .learning_rate = last_learning_rate_,
               .number = counters.step + 1},
              state_);
  workload_.model().AfterUpdate();
  counters.padded_tokens += reduced.padded_tokens;
  ++counters.step;
  counters.boundary_done = false;
  counters.loss_since_log += loss;
  counters.loss_total += loss;
  counters.tokens_seen += reduced.verdict.input_tokens;
  const double seconds = Seconds(context_.clock.Now() - step_started_);
  counters.elapsed_seconds += seconds;
  if (is_lead()) {
    context_.reporter.Report(wire::Progress{
        .rank = context_.rank,
        .generation = membership_.generation,
        .step = counters.step,
        .total_steps = workload_.order().max_steps(),
        .loss = loss,
        .grad_norm = reduced.gradient_norm,
        .learning_rate = last_learning_rate_,
        .epoch = workload_.order().EpochAfter(counters.step),
        .tokens_per_second = static_cast<double>(reduced.verdict.input_tokens) / seconds,
        .step_seconds = seconds});
  }
  return {};
}

// ---- The end of a step -------------------------------------------------------------------------

LogRecord Trainer::RecordNow() const {
  const TrainingCounters& counters = state_.counters();
  LogRecord record;
  record.step = counters.step;
  record.epoch = workload_.order().EpochAfter(counters.step);
  record.elapsed_seconds = counters.elapsed_seconds;
  if (workload_.config().training.include_num_input_tokens_seen) {
    record.input_tokens = counters.tokens_seen;
  }
  return record;
}

Status Trainer::FinishBoundary() {
  TrainingCounters& counters = state_.counters();
  const Due due = workload_.boundaries().At(counters.step);
  std::vector<LogRecord> records;
  if (due.log) {
    LogRecord record = RecordNow();
    record.values["loss"] =
        counters.loss_since_log / static_cast<double>(counters.step - counters.last_logged_step);
    record.values["grad_norm"] = last_gradient_norm_;
    record.values["learning_rate"] = last_learning_rate_;
    records.push_back(std::move(record));
  }
  Metrics measured;
  if (due.evaluate) RETURN_IF_ERROR(EvaluateAll(records, measured));
  for (const LogRecord& record : records) {
    state_.history().Add(record);
    if (is_lead()) artifacts_.AppendLog(record);
  }
  if (due.log) {
    counters.loss_since_log = 0;
    counters.last_logged_step = counters.step;
  }
  if (due.save) NoteBest(measured);
  counters.boundary_done = true;
  if (due.save && is_lead()) {
    SetPhase("save");
    artifacts_.Save(state_, membership_.generation);
  }
  return {};
}

Status Trainer::EvaluateAll(std::vector<LogRecord>& records, Metrics& metrics) {
  SetPhase("evaluate");
  const TimePoint started = context_.clock.Now();
  ASSIGN_OR_RETURN(const std::vector<Evaluation> evaluations, Evaluate(workload_, *communicator_));
  const int64_t batch = workload_.config().training.per_device_eval_batch_size;
  for (const Evaluation& evaluation : evaluations) {
    const std::string prefix = evaluation.name.empty() ? "eval" : "eval_" + evaluation.name;
    const Metrics measured =
        EvalMetrics({.prefix = prefix,
                     .epoch = workload_.order().EpochAfter(state_.counters().step),
                     .loss = evaluation.loss,
                     .runtime_seconds = Seconds(context_.clock.Now() - started),
                     .samples = evaluation.examples,
                     .batches = (evaluation.examples + batch - 1) / batch});
    LogRecord record = RecordNow();
    for (const auto& [key, value] : measured) {
      if (key != "epoch") record.values[key] = value;
      metrics[key] = value;
    }
    if (evaluation.accuracy) {
      record.values[prefix + "_accuracy"] = metrics[prefix + "_accuracy"] = *evaluation.accuracy;
    }
    records.push_back(std::move(record));
  }
  return {};
}

// Only steps with a checkpoint can be gone back to.
void Trainer::NoteBest(const Metrics& metrics) {
  const TrainingArguments& training = workload_.config().training;
  const auto found = metrics.find(workload_.best_metric_name());
  if (found == metrics.end()) return;
  TrainingCounters& counters = state_.counters();
  const double value = found->second;
  const bool better = training.greater_is_better.value_or(true) ? value > counters.best_metric
                                                                : value < counters.best_metric;
  if (std::isnan(value) || (counters.best_step > 0 && !better)) return;
  counters.best_step = counters.step;
  counters.best_metric = value;
}

// Collective. Done again, it gives the same.
Status Trainer::GoBackToBest() {
  const TrainingCounters& counters = state_.counters();
  if (!workload_.config().training.load_best_model_at_end || counters.best_step == 0) return {};
  // A newer one that could not be saved is no reason to stay with the newest.
  if (is_lead()) (void)artifacts_.WaitForSave();
  RETURN_IF_ERROR(communicator_->Barrier());
  LogInfo("goes back to the best model",
          {{"step", counters.best_step}, {"metric", counters.best_metric}});
  RETURN_IF_ERROR(artifacts_.LoadParameters(counters.best_step, state_));
  workload_.model().AfterUpdate();
  return {};
}

LogRecord Trainer::FinalRecord(Metrics& metrics) const {
  const TrainingCounters& counters = state_.counters();
  const TrainingArguments& training = workload_.config().training;
  const auto steps = static_cast<double>(std::max<int64_t>(1, counters.step));
  const double global_batch =
      static_cast<double>(training.per_device_train_batch_size *
                          training.gradient_accumulation_steps * workload_.logical_world());
  const double samples =
      training.max_steps > 0
          ? steps * global_batch
          : static_cast<double>(workload_.data().train.size()) * training.num_train_epochs;
  metrics = TrainMetrics({.epoch = workload_.order().EpochAfter(counters.step),
                          .total_flos = workload_.FloatingPointOperations(counters.padded_tokens),
                          .train_loss = counters.loss_total / steps,
                          .runtime_seconds = counters.elapsed_seconds,
                          .steps = counters.step,
                          .samples = samples});
  LogRecord record = RecordNow();
  for (const auto& [key, value] : metrics) {
    if (key != "epoch") record.values[key] = value;
  }
  return record;
}

// May be done again by the survivors of an interruption: until the results are on the volume
// nobody leaves, and nothing of it enters the state.
Result<Ending> Trainer::FinishTraining() {
  RETURN_IF_ERROR(GoBackToBest());
  Metrics train, evaluation;
  std::vector<LogRecord> records{FinalRecord(train)};
  if (!workload_.data().eval.empty()) RETURN_IF_ERROR(EvaluateAll(records, evaluation));
  if (is_lead()) {
    SetPhase("save");
    TrainingState final_state = state_;
    for (const LogRecord& record : records) final_state.history().Add(record);
    RETURN_IF_ERROR(artifacts_.SaveFinal(final_state, train, evaluation));
  }
  RETURN_IF_ERROR(communicator_->Barrier());
  context_.reporter.Report(
      wire::Finished{context_.rank, state_.counters().step, workload_.output_directory()});
  return Ending::kFinished;
}

Result<Ending> Trainer::StopTraining() {
  SetPhase("save");
  if (is_lead()) {
    const bool saved = workload_.boundaries().At(state_.counters().step).save;
    if (!saved) artifacts_.Save(state_, membership_.generation);
    RETURN_IF_ERROR(artifacts_.WaitForSave());
  }
  RETURN_IF_ERROR(communicator_->Barrier());
  LogInfo("stopped", {{"step", state_.counters().step}});
  return Ending::kStopped;
}

void Trainer::ReportBroken(const Error& error) {
  const int lost = communicator_ ? communicator_->lost_rank() : -1;
  LogInfo("the generation is over",
          {{"generation", membership_.generation}, {"lost_rank", lost}, {"reason", error.message}});
  if (context_.mailbox.Superseded(membership_.generation)) return;  // it is known
  context_.reporter.Report(wire::PeerLost{context_.rank, membership_.generation, lost});
}

}  // namespace everstep
