#include "tests/unit/worker/model/bound_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/check.h"
#include "common/files.h"
#include "tests/support/paths.h"

namespace everstep {

torch::Tensor BoundModel::GradientOf(const std::string& name) const {
  for (const LayoutEntry& entry : layout.entries) {
    if (entry.name == name) {
      return gradient.narrow(0, entry.offset, entry.numel).view(entry.shape);
    }
  }
  ADD_FAILURE() << "no parameter " << name;
  return torch::zeros({1});
}

double BoundModel::Compute(const std::vector<MicroBatch>& batches, double scale) {
  gradient.zero_();
  double loss = 0;
  int accumulation = 0;
  for (const MicroBatch& batch : batches) {
    const auto result = model->ForwardBackward(
        batch, {.seed = 42, .step = 0, .logical_rank = 0, .accumulation = accumulation++}, gradient,
        scale);
    EVERSTEP_CHECK(result.has_value());
    loss += result->loss_sum;
  }
  return loss;
}

TrainConfig FullConfig() {
  TrainConfig config;
  config.finetuning.type = FinetuningType::kFull;
  config.training.gradient_checkpointing = false;
  return config;
}

TrainConfig LoraConfig(const std::string& adapter) {
  TrainConfig config = FullConfig();
  config.finetuning.type = FinetuningType::kLora;
  if (!adapter.empty()) config.model.adapter_name_or_path = {adapter};
  return config;
}

BoundModel LoadBound(const std::string& directory, const TrainConfig& config) {
  BoundModel bound;
  auto model = CausalLm::Load(directory, config, /*vocab_size=*/0);
  if (!model) ADD_FAILURE() << model.error().message;
  bound.model = std::move(model).value();
  for (const CausalLm::Parameter& parameter : bound.model->trainable()) {
    AppendEntry(bound.layout, {.name = parameter.name,
                               .shape = parameter.value.sizes().vec(),
                               .decay = parameter.decay,
                               .lr_scale = parameter.lr_scale});
  }
  bound.parameters = torch::zeros({bound.layout.size});
  bound.gradient = torch::zeros({bound.layout.size});
  bound.model->BindFlat(bound.parameters, bound.layout);
  return bound;
}

std::string GoldenModel(const std::string& name) { return GoldenPath("models/" + name); }

namespace {

template <typename T>
std::vector<T> Flatten(const Json& rows) {
  std::vector<T> flat;
  for (const Json& row : rows) {
    for (const Json& value : row) flat.push_back(value.get<T>());
  }
  return flat;
}

MicroBatch BatchFromJson(const Json& json) {
  MicroBatch batch;
  batch.rows = static_cast<int64_t>(json["ids"].size());
  batch.cols = static_cast<int64_t>(json["ids"][0].size());
  batch.ids = Flatten<int64_t>(json["ids"]);
  batch.labels = Flatten<int64_t>(json["labels"]);
  if (json.contains("positions")) batch.positions = Flatten<int64_t>(json["positions"]);
  if (json.contains("segments")) batch.segments = Flatten<int32_t>(json["segments"]);
  if (json.contains("lengths")) {
    batch.lengths = json["lengths"].get<std::vector<int32_t>>();
  } else {
    batch.lengths.assign(static_cast<size_t>(batch.rows), static_cast<int32_t>(batch.cols));
  }
  batch.label_tokens =
      std::ranges::count_if(batch.labels, [](int64_t label) { return label != kIgnoreLabel; });
  return batch;
}

}  // namespace

std::vector<GoldenStep> LoadGoldenSteps(const std::string& name) {
  const std::string path = GoldenPath("first_steps/" + name + ".json");
  const auto text = ReadFile(path);
  if (!text) ADD_FAILURE() << text.error().message;
  const auto json = ParseJson(*text, path);
  if (!json) ADD_FAILURE() << json.error().message;
  std::vector<GoldenStep> steps;
  for (const Json& item : *json) {
    GoldenStep step;
    for (const Json& micro : item["micro"]) {
      step.batches.push_back(BatchFromJson(micro));
      step.loss += micro["loss"].get<double>();
    }
    step.label_tokens = item["label_tokens"].get<double>();
    step.total_norm = item["total_norm"].get<double>();
    step.gradient_norms = item["grad_norms"];
    step.gradient_sums = item["grad_sums"];
    steps.push_back(std::move(step));
  }
  return steps;
}

MicroBatch MakeBatch(const std::vector<int32_t>& lengths, int64_t vocab_size, uint64_t seed) {
  std::mt19937_64 random(seed);
  MicroBatch batch;
  batch.rows = static_cast<int64_t>(lengths.size());
  batch.cols = *std::ranges::max_element(lengths);
  batch.lengths = lengths;
  for (int32_t length : lengths) {
    for (int64_t col = 0; col < batch.cols; ++col) {
      const bool padding = col >= length;
      const auto id = static_cast<int64_t>(random() % static_cast<uint64_t>(vocab_size));
      batch.ids.push_back(padding ? 0 : id);
      batch.labels.push_back(padding ? kIgnoreLabel : id);
    }
    batch.label_tokens += length;
  }
  return batch;
}

}  // namespace everstep
