// A causal language model of the Llama family, with what is trained of it: all weights, some
// layers, or low-rank adapters.
//
// Exactness: for a given number of threads, loss and gradient of a micro-batch are a function of
// the parameters, the micro-batch and its key alone, bit for bit: not of what ran before, nor of
// the process.
#ifndef EVERSTEP_WORKER_MODEL_CAUSAL_LM_H_
#define EVERSTEP_WORKER_MODEL_CAUSAL_LM_H_

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/config/train_config.h"
#include "worker/data/collate.h"
#include "worker/kernels/arena.h"
#include "worker/model/adapter.h"
#include "worker/model/decoder_layer.h"
#include "worker/model/model_config.h"
#include "worker/model/pass_context.h"
#include "worker/model/rope.h"
#include "worker/objective/token_loss.h"
#include "worker/parallel/layout.h"

namespace everstep {

struct PassResult {
  double loss_sum = 0;        // sum of the tokens' losses; their mean for kMicroBatchMeans
  int64_t scored_tokens = 0;  // tokens with a label that something predicts
};

struct EvaluationPass {
  double loss_sum = 0;
  int64_t scored_tokens = 0;
  // Per row: share of scored tokens whose label is highest. Empty unless asked for.
  std::vector<double> row_accuracy;
};

// One thread at a time may use an object. It computes with at::get_num_threads() threads, which are
// to be set on that thread before the first pass and not changed afterwards.
class CausalLm {
 public:
  // Everything from `directory` (config.json, safetensors), with the training file's precision and
  // finetuning type applied. `vocab_size` is the tokenizer's, of which `new_tokens` were added to
  // it. Errors name file, tensor, remedy.
  static Result<std::unique_ptr<CausalLm>> Load(const std::string& directory,
                                                const TrainConfig& config, int64_t vocab_size,
                                                int64_t new_tokens = 0);

  struct Parameter {
    std::string name;     // its key in what is saved
    torch::Tensor value;  // fp32; before BindFlat in the checkpoint's own type
    bool decay = true;
    double lr_scale = 1;
  };
  // In a fixed order. The values are the initial ones until BindFlat.
  const std::vector<Parameter>& trainable() const { return trainable_; }

  // Moves the trainable parameters into `flat` ([layout.size] fp32, 64-byte aligned; entry i is
  // trainable()[i]) and makes them views of it.
  void BindFlat(torch::Tensor flat, const FlatLayout& layout);
  // Call when the flat vector has changed: refreshes what is derived from it.
  void AfterUpdate();

  // Adds the gradient of (`weight` * sum of the token losses) to `flat_gradient` [layout.size],
  // 64-byte aligned. kInvalidArgument for token ids that the model does not have.
  Result<PassResult> ForwardBackward(const MicroBatch& batch, const MicroBatchKey& key,
                                     torch::Tensor flat_gradient, double weight = 1);
  // No gradients, no dropout, no noise.
  Result<EvaluationPass> Evaluate(const MicroBatch& batch, bool want_accuracy);
  // [rows, cols, vocab] fp32; zero on padding.
  Result<torch::Tensor> Logits(const MicroBatch& batch);

  LossNormalization normalization() const { return loss_.normalization(); }
  int64_t vocab_size() const { return config_.vocab_size; }
  // All parameters but the input embedding's: what transformers' estimate of floating-point
  // operations goes by (6 per parameter and token; Kaplan et al., 2020, section 2.1).
  int64_t ParametersBesidesEmbedding() const;

  // With gradient checkpointing, as many layers keep their activations as fit into this; the others
  // compute them again. Without influence on results; 0 keeps none.
  void set_activation_budget_bytes(int64_t bytes) { activation_budget_bytes_ = bytes; }

  // Tensors of the model (full, freeze) or adapter (lora) file that are not trainable, to be saved
  // beside the trainable ones. Views into the model's memory.
  std::vector<TensorView> FrozenToSave() const;
  // config.json of what is saved (full, freeze), or adapter_config.json (lora).
  std::string ConfigToSave(const std::string& base_model) const;

 private:
  struct NamedWeight {
    std::string name;
    std::vector<int64_t> shape;
    Weight* weight;
  };
  // A layer as the backward pass meets it: its input, and its activations if they were kept.
  struct LayerTrace {
    torch::Tensor input;
    LayerActivations kept;
    bool is_kept = false;
  };

  CausalLm(ModelConfig config, const TrainConfig& train);
  std::vector<NamedWeight> BaseWeights();
  Status LoadBase(const std::string& directory);
  Status LoadWeight(const NamedWeight& named, const std::string& directory);
  Status CheckVocabulary(const std::string& directory, int64_t vocab_size, int64_t new_tokens);
  void ResizeVocabulary(int64_t vocab_size);
  Status ChooseTrainable();
  Status CheckFreezeModules();
  void AlignFrozenWeights();
  Status AddLora();
  Status MergeAdapter(const AdapterConfig& config, const SafetensorsFile& file);
  // `start` holds the adapter to continue from; null: a fresh one.
  Status BuildLora(const SafetensorsFile* start);
  Status BuildLoraPath(int64_t layer, int which, const SafetensorsFile* start);
  Status TrainWholeModules(const SafetensorsFile* start);
  void ChooseFrozenLayers();
  double LrScale(const std::string& name, int64_t dimensions) const;
  void CollectTrainable();
  void RefreshAll();

  PassContext MakePass(const TokenBatch& tokens);
  void PointGradients(const torch::Tensor& flat_gradient);
  torch::Tensor Embed(const PassContext& pass);
  // The residual stream after all layers; traces of those that train, if asked for.
  torch::Tensor ForwardLayers(const PassContext& pass, std::vector<LayerTrace>* traces);
  size_t FirstKeptLayer(const PassContext& pass) const;
  void BackwardLayers(torch::Tensor& gradient, std::vector<LayerTrace>& traces,
                      const PassContext& pass);
  void BackwardEmbedding(const torch::Tensor& gradient, const PassContext& pass);
  double LossAndGradients(const PassContext& pass, double weight);
  Weight& output_projection() { return lm_head_.defined() ? lm_head_ : embedding_; }

  ModelConfig config_;
  FinetuningType finetuning_;
  FinetuningArguments arguments_;
  ModelArguments model_arguments_;
  uint64_t seed_;
  double neftune_alpha_ = 0;
  bool checkpointing_ = true;
  int64_t activation_budget_bytes_ = int64_t{512} << 20;
  TokenLoss loss_;
  torch::ScalarType compute_type_;

  std::unique_ptr<SafetensorsSet> files_;  // frozen weights may be views into it
  Weight embedding_, final_norm_;
  Weight lm_head_;  // undefined when the embedding is the output projection too
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  AdapterConfig adapter_;
  std::vector<std::pair<std::string, Weight*>> trained_;  // saved name, weight
  std::vector<Parameter> trainable_;
  FlatLayout layout_;
  // Layers below have nothing to train and need no gradients.
  size_t first_trained_layer_ = 0;
  RopeTable rope_;
  Arena arena_;
};

// Keeps freed memory in the process instead of giving it back to the kernel: large tensors of a
// step would otherwise be page-faulted in anew every time. Call once, at the start of the program.
void ConfigureAllocator();

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_CAUSAL_LM_H_
