#include "worker/artifacts.h"

#include <stdlib.h>

#include <cstring>
#include <filesystem>

#include "common/files.h"
#include "common/log.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/optimizer_state.h"
#include "worker/report/loss_plot.h"
#include "worker/report/model_card.h"
#include "worker/report/trainer_state.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

bool IsLora(const TrainConfig& config) { return config.finetuning.type == FinetuningType::kLora; }

const char* WeightsName(const TrainConfig& config) {
  return IsLora(config) ? "adapter_model.safetensors" : "model.safetensors";
}

std::span<const std::byte> BytesOf(const float* data, int64_t count) {
  return std::as_bytes(std::span<const float>(data, static_cast<size_t>(count)));
}

// A decision of the first member for all: a text, or an error.
Result<std::string> BroadcastDecision(Communicator& communicator, Result<std::string> decision) {
  struct Header {
    int32_t error_code;
    uint32_t length;
  };
  const bool decides = communicator.rank() == 0;
  std::string text;
  Header header{-1, 0};
  if (decides) {
    text = decision ? *decision : decision.error().message;
    header = {decision ? -1 : static_cast<int32_t>(decision.error().code),
              static_cast<uint32_t>(text.size())};
  }
  RETURN_IF_ERROR(communicator.Broadcast(0, AsMutableBytes(std::span<Header>(&header, 1))));
  text.resize(header.length);
  RETURN_IF_ERROR(communicator.Broadcast(0, AsMutableBytes(std::span<char>(text))));
  if (header.error_code >= 0) return MakeError(static_cast<ErrorCode>(header.error_code), text);
  return text;
}

}  // namespace

Artifacts::Artifacts(Workload& workload, Reporter& reporter, Options options)
    : workload_(workload),
      reporter_(reporter),
      options_(std::move(options)),
      store_(workload.output_directory(), {.run = options_.run, .free_space = {}}),
      log_(workload.output_directory() + "/trainer_log.jsonl", workload.order().max_steps()),
      saver_(std::make_unique<CheckpointSaver>(
          store_, [this](const SaveOutcome& outcome) { OnSaved(outcome); })) {}

Status Artifacts::TakeOver(TrainingState& state, uint64_t generation) {
  {
    const std::lock_guard lock(mutex_);
    generation_ = generation;
  }
  RETURN_IF_ERROR(store_.TakeOver(generation));
  if (const Status written = log_.Rewrite(state.history()); !written) {
    LogWarning(written.error().message);
  }
  return PrepareTokenizerFiles();
}

Status Artifacts::PrepareTokenizerFiles() {
  if (!tokenizer_files_.empty()) return {};
  std::string pattern = (fs::temp_directory_path() / "everstep-tokenizer-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    return Internal("cannot make a temporary directory: " + ErrnoText(errno));
  }
  Status status = workload_.tokenizer().Save(pattern);
  for (const auto& entry : fs::directory_iterator(pattern)) {
    if (!status) break;
    auto content = ReadFile(entry.path());
    if (!content) {
      status = tl::unexpected(content.error());
    } else {
      tokenizer_files_.push_back({entry.path().filename(), std::move(*content)});
    }
  }
  std::error_code ignored;
  fs::remove_all(pattern, ignored);
  return status;
}

RunShape Artifacts::Shape() const {
  const TrainingArguments& training = workload_.config().training;
  RunShape shape;
  shape.logical_world = workload_.logical_world();
  shape.threads_per_process = workload_.options().threads;
  shape.micro_batch_rows = training.per_device_train_batch_size;
  shape.accumulation_steps = training.gradient_accumulation_steps;
  shape.seed = training.seed;
  shape.data_seed = training.data_seed.value_or(training.seed);
  shape.training_samples = static_cast<int64_t>(workload_.data().train.size());
  shape.max_steps = workload_.order().max_steps();
  shape.schedule = {{"type", training.lr_scheduler_type},
                    {"arguments", training.lr_scheduler_kwargs},
                    {"learning_rate", training.learning_rate},
                    {"warmup_steps", workload_.schedule().warmup_steps()}};
  return shape;
}

// ---- Starting from a checkpoint ----------------------------------------------------------------

Result<std::string> Artifacts::ChooseCheckpoint(Communicator& communicator,
                                                const wire::Membership& membership) {
  Result<std::string> decision = std::string();
  if (communicator.rank() == 0) decision = DecideCheckpoint(membership);
  return BroadcastDecision(communicator, std::move(decision));
}

Result<std::string> Artifacts::DecideCheckpoint(const wire::Membership& membership) {
  // Raises the fence before anything is removed or chosen: an older generation writes no more.
  RETURN_IF_ERROR(store_.TakeOver(membership.generation));
  const TrainingArguments& training = workload_.config().training;
  if (options_.first_start && !training.resume_from_checkpoint.empty()) {
    const std::string& path = training.resume_from_checkpoint;
    if (!fs::is_directory(path)) {
      return InvalidArgument("resume_from_checkpoint: " + path + ": there is no such directory");
    }
    if (const auto known = InspectCheckpoint(path);
        !known && known.error().code == ErrorCode::kNotFound) {
      return InvalidArgument("resume_from_checkpoint: " + known.error().message +
                             ": to go on from its weights alone, name it as "
                             "model_name_or_path or adapter_name_or_path");
    }
    return path;
  }
  if (options_.first_start && training.overwrite_output_dir) {
    RETURN_IF_ERROR(store_.RemoveAll());
    return std::string();
  }
  ASSIGN_OR_RETURN(const FoundCheckpoints found, store_.FindNewest());
  for (const SkippedCheckpoint& skipped : found.skipped) {
    LogWarning("checkpoint skipped", {{"path", skipped.path}, {"reason", skipped.reason}});
  }
  if (found.newest) return *found.newest;
  if (membership.durable_step > 0) {
    return MakeError(ErrorCode::kFailedPrecondition,
                     store_.directory() + ": a checkpoint of step " +
                         std::to_string(membership.durable_step) +
                         " was saved, but no valid one is left: restore it, or start the job over");
  }
  return std::string();
}

Status Artifacts::Load(const std::string& path, TrainingState& state) {
  if (path.empty()) {
    state.set_present(true);
    return {};
  }
  ASSIGN_OR_RETURN(const LoadedCheckpoint loaded, LoadCheckpoint(path));
  const std::vector<std::string> differences = Differences(loaded.state.shape, Shape());
  for (const std::string& difference : differences) {
    if (!options_.first_start) {
      return MakeError(ErrorCode::kFailedPrecondition,
                       path + ": does not belong to this job: " + difference);
    }
    LogWarning("the checkpoint is of a run of another shape: results will differ from it",
               {{"difference", difference}});
  }
  RETURN_IF_ERROR(
      ReadOptimizerTensors(loaded.optimizer, state.layout(),
                           {state.Parameters(), state.FirstMoment(), state.SecondMoment()}));
  RETURN_IF_ERROR(state.RestoreSmallState(loaded.state.progress));
  LogInfo("resumed from checkpoint", {{"path", path}, {"step", state.counters().step}});
  return {};
}

Status Artifacts::LoadParameters(int64_t step, TrainingState& state) {
  const std::string path = store_.directory() + "/" + CheckpointName(step);
  if (const auto verified = VerifyCheckpoint(path); !verified) {
    return MakeError(
        ErrorCode::kFailedPrecondition,
        "load_best_model_at_end: the best checkpoint cannot be read (was the disk full "
        "when it was saved?): " +
            verified.error().message);
  }
  ASSIGN_OR_RETURN(const SafetensorsFile file,
                   SafetensorsFile::Open(path + "/" + WeightsName(workload_.config())));
  for (const LayoutEntry& entry : state.layout().entries) {
    const TensorView* tensor = file.Find(entry.name);
    const std::span<float> to = state.Parameters().subspan(static_cast<size_t>(entry.offset),
                                                           static_cast<size_t>(entry.numel));
    if (tensor == nullptr || tensor->data.size() != to.size_bytes()) {
      return DataLoss(file.path() + ": does not hold '" + entry.name + "' as this run trains it");
    }
    std::memcpy(to.data(), tensor->data.data(), to.size_bytes());
  }
  return {};
}

// ---- Saving ------------------------------------------------------------------------------------

void Artifacts::AppendLog(const LogRecord& record) {
  if (const Status written = log_.Append(record); !written) LogWarning(written.error().message);
}

std::string Artifacts::TrainerState(TrainingState& state, bool should_save) const {
  const TrainingArguments& training = workload_.config().training;
  const BoundarySchedule& boundaries = workload_.boundaries();
  TrainerStateFacts facts;
  facts.global_step = state.counters().step;
  facts.epoch = workload_.order().EpochAfter(facts.global_step);
  facts.max_steps = workload_.order().max_steps();
  facts.num_train_epochs = workload_.order().epochs();
  facts.logging_steps = boundaries.logging_steps();
  facts.eval_steps = boundaries.eval_steps();
  facts.save_steps = boundaries.save_steps();
  facts.train_batch_size = training.per_device_train_batch_size;
  facts.input_tokens_seen =
      training.include_num_input_tokens_seen ? state.counters().tokens_seen : 0;
  facts.total_flos = workload_.FloatingPointOperations(state.counters().padded_tokens);
  facts.should_save = should_save;
  if (const TrainingCounters& counters = state.counters(); counters.best_step > 0) {
    facts.best_metric = counters.best_metric;
    facts.best_global_step = counters.best_step;
    facts.best_model_checkpoint = store_.directory() + "/" + CheckpointName(counters.best_step);
  }
  return TrainerStateJson(facts, state.history());
}

// `copy` holds the parameters in the layout's order.
FileSet Artifacts::ModelFiles(TrainingState& state,
                              const std::shared_ptr<const std::vector<float>>& copy) {
  const TrainConfig& config = workload_.config();
  TensorFile tensors;
  tensors.path = WeightsName(config);
  for (const LayoutEntry& entry : state.layout().entries) {
    tensors.tensors.push_back({entry.name, DType::kFloat32, entry.shape,
                               BytesOf(copy->data() + entry.offset, entry.numel)});
  }
  for (TensorView& view : workload_.model().FrozenToSave()) {
    tensors.tensors.push_back(std::move(view));
  }
  FileSet files;
  files.tensor_files.push_back(std::move(tensors));
  files.text_files = tokenizer_files_;
  files.text_files.push_back({IsLora(config) ? "adapter_config.json" : "config.json",
                              workload_.model().ConfigToSave(config.model.model_name_or_path)});
  const std::string generation = workload_.options().model_directory + "/generation_config.json";
  if (!IsLora(config) && fs::exists(generation)) {
    files.copied_files.push_back({"generation_config.json", generation});
  }
  files.memory = copy;
  return files;
}

void Artifacts::Save(TrainingState& state, uint64_t generation) {
  {
    const std::lock_guard lock(mutex_);
    generation_ = generation;
  }
  const TrainingArguments& training = workload_.config().training;
  const bool resumable = !training.save_only_model;
  const auto size = static_cast<size_t>(state.layout().size);
  auto copy = std::make_shared<std::vector<float>>(resumable ? 3 * size : size);
  const auto put = [&](size_t at, std::span<const float> values) {
    std::memcpy(copy->data() + at, values.data(), values.size_bytes());
  };
  put(0, state.Parameters());
  if (resumable) {
    put(size, state.FirstMoment());
    put(2 * size, state.SecondMoment());
  }
  CheckpointContent content;
  content.step = state.counters().step;
  content.files = ModelFiles(state, copy);
  content.files.text_files.push_back({"trainer_state.json", TrainerState(state, true)});
  content.layout = LayoutJson(state.layout());
  if (resumable) {
    Json progress = state.SmallState();
    progress["boundary_done"] = true;
    content.resume = ResumeState{content.step, workload_.order().EpochAfter(content.step), Shape(),
                                 std::move(progress)};
    const std::span<const float> all(*copy);
    content.optimizer = OptimizerTensors(
        state.layout(),
        {all.subspan(0, size), all.subspan(size, size), all.subspan(2 * size, size)});
  }
  const int64_t best_step = state.counters().best_step;
  saver_->Save(std::move(content),
               {.total_limit = training.save_total_limit,
                .best_step = best_step > 0 ? std::optional(best_step) : std::nullopt,
                .milestone_steps = workload_.options().milestone_steps});
}

void Artifacts::OnSaved(const SaveOutcome& outcome) {
  wire::CheckpointSaved saved;
  saved.rank = options_.rank;
  saved.step = outcome.step;
  saved.seconds = outcome.seconds;
  {
    const std::lock_guard lock(mutex_);
    saved.generation = generation_;
    last_save_ = outcome.path ? Status{} : Status(tl::unexpected(outcome.path.error()));
  }
  if (outcome.path) {
    saved.path = *outcome.path;
  } else {
    saved.warning = outcome.path.error().message;
    LogWarning("checkpoint not saved, training goes on",
               {{"step", outcome.step}, {"reason", outcome.path.error().message}});
  }
  reporter_.Report(saved);
}

Status Artifacts::WaitForSave() {
  saver_->Wait();
  const std::lock_guard lock(mutex_);
  return last_save_;
}

Status Artifacts::SaveFinal(TrainingState& state, const Metrics& train, const Metrics& evaluation) {
  saver_->Wait();
  const TrainConfig& config = workload_.config();
  const std::span<const float> parameters = state.Parameters();
  const auto copy =
      std::make_shared<const std::vector<float>>(parameters.begin(), parameters.end());
  FileSet files = ModelFiles(state, copy);
  const auto add = [&](const char* name, std::string content) {
    if (!content.empty()) files.text_files.push_back({name, std::move(content)});
  };
  Metrics all = train;
  all.insert(evaluation.begin(), evaluation.end());
  add("train_results.json", ResultsJson(train));
  if (!evaluation.empty()) add("eval_results.json", ResultsJson(evaluation));
  add("all_results.json", ResultsJson(all));
  add("trainer_state.json", TrainerState(state, true));
  add("trainer_log.jsonl", TrainerLogText(state.history(), workload_.order().max_steps()));
  const std::string name = fs::path(workload_.output_directory()).filename();
  if (config.finetuning.plot_loss) {
    add("training_loss.svg",
        LossPlotSvg(CurveOf(state.history(), "loss"), "training loss of " + name, "loss"));
    add("training_eval_loss.svg",
        LossPlotSvg(CurveOf(state.history(), "eval_loss"), "evaluation loss of " + name, "loss"));
  }
  ModelCard card;
  card.name = name;
  card.base_model = config.model.model_name_or_path;
  card.finetuning_type = IsLora(config)                                    ? "lora"
                         : config.finetuning.type == FinetuningType::kFull ? "full"
                                                                           : "freeze";
  card.stage = config.finetuning.stage == Stage::kPt ? "pt" : "sft";
  card.datasets = config.data.dataset;
  card.settings = SettingsTable(config);
  card.results = all;
  add("README.md", ModelCardText(card));
  return store_.WriteFinal(files);
}

}  // namespace everstep
