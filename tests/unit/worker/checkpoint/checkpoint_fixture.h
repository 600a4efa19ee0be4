// Small checkpoints whose content is a function of the step, and a folder that is removed again.
#ifndef EVERSTEP_TESTS_UNIT_WORKER_CHECKPOINT_CHECKPOINT_FIXTURE_H_
#define EVERSTEP_TESTS_UNIT_WORKER_CHECKPOINT_CHECKPOINT_FIXTURE_H_

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/check.h"
#include "tests/support/temp_dir.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/optimizer_state.h"
#include "worker/parallel/layout.h"

namespace everstep::testing {

namespace fs = std::filesystem;

using everstep::TempDir;

inline std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

inline FlatLayout SmallLayout(int64_t rows = 40) {
  FlatLayout layout;
  int64_t offset = 0;
  for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
           {"layers.0.weight", {rows, 30}}, {"layers.0.bias", {rows}}, {"norm.weight", {7}}}) {
    int64_t numel = 1;
    for (const int64_t dimension : shape) numel *= dimension;
    layout.entries.push_back({name, shape, offset, numel, true, 1.0});
    offset += (numel + kLayoutAlignment - 1) / kLayoutAlignment * kLayoutAlignment;
  }
  layout.size = offset;
  return layout;
}

// The value of element i of vector `which` after `step`; padding is zero as the layout demands.
inline float ValueAt(int64_t step, int which, int64_t i) {
  return static_cast<float>(step * 1000 + which * 100) + static_cast<float>(i) * 0.001f;
}

inline std::vector<float> VectorOf(const FlatLayout& layout, int64_t step, int which) {
  std::vector<float> vector(static_cast<size_t>(layout.size), 0.0f);
  for (const LayoutEntry& entry : layout.entries) {
    for (int64_t i = entry.offset; i < entry.offset + entry.numel; ++i) {
      vector[static_cast<size_t>(i)] = ValueAt(step, which, i);
    }
  }
  return vector;
}

struct Snapshot {
  std::vector<float> parameters, first_moment, second_moment;
};

// A checkpoint of `step` as a trainer makes it; the memory is its own.
inline CheckpointContent ContentOf(int64_t step, const FlatLayout& layout = SmallLayout()) {
  auto memory = std::make_shared<Snapshot>(
      Snapshot{VectorOf(layout, step, 0), VectorOf(layout, step, 1), VectorOf(layout, step, 2)});
  CheckpointContent content;
  content.step = step;
  TensorFile model{"model.safetensors", {}};
  for (const LayoutEntry& entry : layout.entries) {
    const auto values =
        std::span(memory->parameters)
            .subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.numel));
    model.tensors.push_back({entry.name, DType::kFloat32, entry.shape, std::as_bytes(values)});
  }
  content.files.tensor_files.push_back(std::move(model));
  content.files.text_files.push_back({"config.json", "{\"model_type\": \"tiny\"}\n"});
  content.files.text_files.push_back(
      {"trainer_state.json", "{\"global_step\": " + std::to_string(step) + "}\n"});
  content.files.memory = memory;
  ResumeState resume;
  resume.step = step;
  resume.epoch = static_cast<double>(step) / 8;
  resume.shape = {.logical_world = 4, .threads_per_process = 2, .seed = 42};
  resume.progress = Json{{"step", step}, {"tokens", step * 100}};
  content.resume = resume;
  content.optimizer =
      OptimizerTensors(layout, {memory->parameters, memory->first_moment, memory->second_moment});
  content.layout = LayoutJson(layout);
  return content;
}

// Whether what was loaded is the state after `step`, to the bit.
inline bool IsStateOf(const LoadedCheckpoint& loaded, int64_t step,
                      const FlatLayout& layout = SmallLayout()) {
  const auto size = static_cast<size_t>(layout.size);
  std::vector<float> parameters(size, -1), first(size, -1), second(size, -1);
  const Status read = ReadOptimizerTensors(loaded.optimizer, layout, {parameters, first, second});
  return read.has_value() && loaded.state.step == step && loaded.manifest.step == step &&
         loaded.state.progress["tokens"] == step * 100 && parameters == VectorOf(layout, step, 0) &&
         first == VectorOf(layout, step, 1) && second == VectorOf(layout, step, 2);
}

inline void FlipByte(const std::string& path, int64_t at, char mask = 1) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  char byte = 0;
  file.read(&byte, 1);
  byte = static_cast<char>(byte ^ mask);
  file.seekp(at);
  file.write(&byte, 1);
  EVERSTEP_CHECK(file.good());
}

}  // namespace everstep::testing

#endif  // EVERSTEP_TESTS_UNIT_WORKER_CHECKPOINT_CHECKPOINT_FIXTURE_H_
