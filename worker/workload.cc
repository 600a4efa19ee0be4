#include "worker/workload.h"

#include <ATen/Version.h>
#include <xxhash.h>

#include <algorithm>
#include <numeric>

#include "common/log.h"
#include "common/strings.h"
#include "common/wire.h"

namespace everstep {

Workload::Workload(TrainConfig config, const WorkloadOptions& options, Tokenizer tokenizer)
    : config_(std::move(config)), options_(options), tokenizer_(std::move(tokenizer)) {}

Result<std::unique_ptr<Workload>> Workload::Load(TrainConfig config,
                                                 const WorkloadOptions& options) {
  ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Load(options.model_directory));
  std::unique_ptr<Workload> workload(
      new Workload(std::move(config), options, std::move(tokenizer)));
  ASSIGN_OR_RETURN(workload->data_,
                   PrepareData(workload->config_, workload->tokenizer_, options.today));
  for (const std::string& warning : workload->data_.warnings) LogWarning(warning);
  workload->config_.model.resize_vocab = workload->data_.resize_vocab;
  RETURN_IF_ERROR(workload->PlanSteps());
  RETURN_IF_ERROR(workload->FindBestMetric());

  ASSIGN_OR_RETURN(workload->model_, CausalLm::Load(options.model_directory, workload->config_,
                                                    workload->tokenizer_.vocab_size()));
  RETURN_IF_ERROR(workload->CheckTokenIds());
  FlatLayout layout;
  for (const CausalLm::Parameter& parameter : workload->model_->trainable()) {
    AppendEntry(layout, {.name = parameter.name,
                         .shape = parameter.value.sizes().vec(),
                         .decay = parameter.decay,
                         .lr_scale = parameter.lr_scale});
  }
  workload->state_ = std::make_unique<TrainingState>(std::move(layout));
  workload->model_->BindFlat(workload->state_->parameters(), workload->state_->layout());
  workload->fingerprint_ = workload->ComputeFingerprint();
  return workload;
}

Status Workload::CheckTokenIds() const {
  const int64_t vocab = model_->vocab_size();
  for (const Example& example : data_.train) {
    for (int32_t id : example.ids) {
      if (id < vocab) continue;
      return InvalidArgument(options_.model_directory + ": the tokenizer makes token " +
                             std::to_string(id) + " but the model has " + std::to_string(vocab) +
                             ": set resize_vocab: true, or use the template and tokenizer that "
                             "belong to the model");
    }
  }
  return {};
}

Status Workload::PlanSteps() {
  const TrainingArguments& training = config_.training;
  if (data_.train.empty()) {
    return InvalidArgument("the data sets hold no training example: check dataset and cutoff_len");
  }
  for (const Example& example : data_.train) {
    label_counts_.push_back(
        std::ranges::count_if(example.labels, [](int32_t label) { return label != kIgnoreLabel; }));
  }
  if (std::ranges::all_of(label_counts_, [](int64_t count) { return count == 0; })) {
    return InvalidArgument("cutoff_len: " + std::to_string(config_.data.cutoff_len) +
                           " leaves no token to train on in any example: raise it");
  }
  order_ = std::make_unique<SampleOrder>(
      SampleOrderOptions{.samples = static_cast<int64_t>(data_.train.size()),
                         .batch_size = training.per_device_train_batch_size,
                         .accumulation = training.gradient_accumulation_steps,
                         .logical_world = options_.logical_world,
                         .seed = training.data_seed.value_or(training.seed),
                         .shuffle = !config_.finetuning.disable_shuffling,
                         .drop_last = training.dataloader_drop_last,
                         .num_train_epochs = training.num_train_epochs,
                         .max_steps = training.max_steps});
  if (order_->max_steps() <= 0) {
    return InvalidArgument("no step to train: " + std::to_string(data_.train.size()) +
                           " examples make no full batch (dataloader_drop_last is on)");
  }
  ASSIGN_OR_RETURN(LrSchedule schedule, LrSchedule::Create(training, order_->max_steps()));
  schedule_ = std::make_unique<LrSchedule>(std::move(schedule));
  boundaries_ = std::make_unique<BoundarySchedule>(training, order_->max_steps(),
                                                   order_->updates_per_epoch());
  return {};
}

Status Workload::FindBestMetric() {
  const TrainingArguments& training = config_.training;
  const std::string& wanted = training.metric_for_best_model;
  if (wanted.empty() || data_.eval.empty()) return {};
  std::vector<std::string> names;
  for (const auto& [name, examples] : data_.eval) {
    const std::string prefix = name.empty() ? "eval_" : "eval_" + name + "_";
    names.push_back(prefix + "loss");
    if (config_.finetuning.compute_accuracy) names.push_back(prefix + "accuracy");
  }
  best_metric_name_ = wanted.starts_with("eval_") ? wanted : "eval_" + wanted;
  if (std::ranges::find(names, best_metric_name_) != names.end()) return {};
  return InvalidArgument("metric_for_best_model: '" + wanted +
                         "' is not measured here: use one of " + Join(names, ", "));
}

uint64_t Workload::ComputeFingerprint() const {
  uint64_t hash = 0;
  const auto add = [&hash](const void* data, size_t size) {
    hash = XXH3_64bits_withSeed(data, size, hash);
  };
  const std::string file = DumpJson(config_.raw);
  add(file.data(), file.size());
  for (const LayoutEntry& entry : state_->layout().entries) {
    add(entry.name.data(), entry.name.size());
    add(entry.shape.data(), entry.shape.size() * sizeof(int64_t));
  }
  for (const Example& example : data_.train) {
    add(example.ids.data(), example.ids.size() * sizeof(int32_t));
    add(example.labels.data(), example.labels.size() * sizeof(int32_t));
  }
  const int64_t numbers[] = {options_.threads, options_.logical_world, wire::kVersion};
  add(numbers, sizeof(numbers));
  // Processors of different kinds run different kernels, which round differently.
  const std::string processor = at::get_cpu_capability();
  add(processor.data(), processor.size());
  return hash;
}

std::vector<MicroBatch> Workload::MicroBatches(int64_t step, int logical_rank) const {
  std::vector<MicroBatch> batches;
  for (const std::vector<size_t>& indices : order_->MicroBatches(step, logical_rank)) {
    batches.push_back(CollateRows(data_.train, indices));
  }
  return batches;
}

Workload::StepTokens Workload::TokensOf(int64_t step) const {
  const int64_t multiple = data_.pad_multiple;
  StepTokens tokens;
  for (int logical_rank = 0; logical_rank < options_.logical_world; ++logical_rank) {
    for (const std::vector<size_t>& indices : order_->MicroBatches(step, logical_rank)) {
      int64_t longest = 0;
      for (size_t index : indices) {
        tokens.labels += label_counts_[index];
        longest = std::max(longest, std::ssize(data_.train[index].ids));
      }
      tokens.padded += (longest + multiple - 1) / multiple * multiple * std::ssize(indices);
    }
  }
  return tokens;
}

MicroBatch Workload::CollateRows(const std::vector<Example>& examples,
                                 const std::vector<size_t>& indices) const {
  std::vector<const Example*> rows;
  for (size_t index : indices) rows.push_back(&examples[index]);
  return Collate(rows, {.pad_id = data_.pad_id, .pad_multiple = data_.pad_multiple});
}

int64_t InputTokens(const MicroBatch& batch) {
  return std::accumulate(batch.lengths.begin(), batch.lengths.end(), int64_t{0});
}

}  // namespace everstep
