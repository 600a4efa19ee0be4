#include "worker/checkpoint/checkpoint.h"

namespace everstep {
namespace {

Json ShapeJson(const RunShape& shape) {
  return Json{{"logical_world", shape.logical_world},
              {"threads_per_process", shape.threads_per_process},
              {"micro_batch_rows", shape.micro_batch_rows},
              {"accumulation_steps", shape.accumulation_steps},
              {"seed", shape.seed},
              {"data_seed", shape.data_seed},
              {"training_samples", shape.training_samples},
              {"max_steps", shape.max_steps},
              {"schedule", shape.schedule}};
}

RunShape ShapeFrom(const Json& json) {
  RunShape shape;
  shape.logical_world = JsonValue<int>(json, "logical_world", 0);
  shape.threads_per_process = JsonValue<int>(json, "threads_per_process", 0);
  shape.micro_batch_rows = JsonValue<int64_t>(json, "micro_batch_rows", 0);
  shape.accumulation_steps = JsonValue<int64_t>(json, "accumulation_steps", 0);
  shape.seed = JsonValue<int64_t>(json, "seed", 0);
  shape.data_seed = JsonValue<int64_t>(json, "data_seed", 0);
  shape.training_samples = JsonValue<int64_t>(json, "training_samples", 0);
  shape.max_steps = JsonValue<int64_t>(json, "max_steps", 0);
  shape.schedule = json.value("schedule", Json::object());
  return shape;
}

}  // namespace

std::vector<std::string> Differences(const RunShape& saved, const RunShape& wanted) {
  const Json before = ShapeJson(saved);
  const Json now = ShapeJson(wanted);
  std::vector<std::string> differences;
  for (const auto& [key, value] : now.items()) {
    if (before[key] == value) continue;
    differences.push_back(key + ": the checkpoint has " + DumpJson(before[key]) +
                          ", this run has " + DumpJson(value));
  }
  return differences;
}

Json ResumeState::ToJson() const {
  return Json{
      {"step", step}, {"epoch", epoch}, {"shape", ShapeJson(shape)}, {"progress", progress}};
}

Result<ResumeState> ResumeState::FromJson(const Json& json) {
  for (const char* key : {"step", "epoch", "shape", "progress"}) {
    if (!json.is_object() || !json.contains(key)) {
      return DataLoss(std::string(kStateFile) + ": '" + key + "' is missing");
    }
  }
  ResumeState state;
  state.step = JsonValue<int64_t>(json, "step", -1);
  state.epoch = JsonValue<double>(json, "epoch", 0);
  if (state.step < 0 || !json["shape"].is_object()) {
    return DataLoss(std::string(kStateFile) + ": 'step' or 'shape' is malformed");
  }
  state.shape = ShapeFrom(json["shape"]);
  state.progress = json["progress"];
  return state;
}

}  // namespace everstep
