// What a checkpoint holds, as values: what a writer is given and what a reader gives back.
//
//   checkpoint-<step>/
//     model.safetensors | adapter_model.safetensors, config.json, tokenizer files,
//     trainer_state.json, trainer_log.jsonl, ...          as LLaMA-Factory's: load anywhere
//     everstep/optimizer.safetensors   Adam's moments (and fp32 parameters), see optimizer_state.h
//     everstep/state.json              step, epoch, data position, seed, schedule, counters
//     everstep/manifest.json           written last: every file with size and checksum
#ifndef EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_H_
#define EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"

namespace everstep {

inline constexpr char kStateFile[] = "everstep/state.json";
inline constexpr char kOptimizerFile[] = "everstep/optimizer.safetensors";

// Paths are relative to the checkpoint directory and stay inside it.
struct TensorFile {
  std::string path;
  std::vector<TensorView> tensors;  // names are unique
  SafetensorsMetadata metadata{{"format", "pt"}};
};
struct TextFile {
  std::string path;
  std::string content;
};
struct CopiedFile {
  std::string path;
  std::string source;
};

// Files to be written. `memory` keeps what the tensor views point into alive (a snapshot); with an
// empty one the memory is the caller's and outlives the write.
struct FileSet {
  std::vector<TensorFile> tensor_files;
  std::vector<TextFile> text_files;
  std::vector<CopiedFile> copied_files;
  std::shared_ptr<const void> memory;
};

// What decides a run's bits besides the training file's other keys: a resume must find it equal.
struct RunShape {
  int logical_world = 1;
  int threads_per_process = 1;
  int64_t micro_batch_rows = 1;  // per_device_train_batch_size
  int64_t accumulation_steps = 1;
  int64_t seed = 0;
  int64_t data_seed = 0;
  int64_t training_samples = 0;
  int64_t max_steps = 0;
  Json schedule = Json::object();  // type, arguments, learning rate, warm-up: the caller's words

  bool operator==(const RunShape&) const = default;
};

// One line per field that differs, empty when a resume continues to the bit:
//   "logical_world: the checkpoint has 4, this run has 2"
std::vector<std::string> Differences(const RunShape& saved, const RunShape& wanted);

// Content of everstep/state.json.
struct ResumeState {
  int64_t step = 0;  // completed optimizer steps; also the position in the data
  double epoch = 0;  // as logged
  RunShape shape;
  Json progress = Json::object();  // counters and log history: the trainer's own document

  Json ToJson() const;
  static Result<ResumeState> FromJson(const Json& json);
};

struct CheckpointContent {
  int64_t step = 0;
  FileSet files;
  // Absent (save_only_model): the checkpoint is for use, not for resuming.
  std::optional<ResumeState> resume;
  std::vector<TensorView> optimizer;  // with `resume`; see optimizer_state.h
  Json layout = Json::array();        // LayoutJson, for the manifest
};

// A checkpoint that was read and verified. Tensors are mapped, not copied.
struct LoadedCheckpoint {
  std::string path;
  Manifest manifest;
  ResumeState state;
  SafetensorsFile optimizer;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_H_
