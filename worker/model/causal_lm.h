// A causal language model of the Llama family, with what is trained of it.
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
#include "worker/model/adapter.h"
#include "worker/model/decoder_layer.h"
#include "worker/model/model_config.h"
#include "worker/objective/token_loss.h"
#include "worker/parallel/layout.h"

namespace everstep {

struct PassResult {
  double loss_sum = 0;        // sum of the tokens' losses
  int64_t scored_tokens = 0;  // tokens with a label that something predicts
};

struct EvaluationPass {
  double loss_sum = 0;
  int64_t scored_tokens = 0;
  std::vector<double> row_accuracy;  // per row: share of scored tokens whose label is highest
};

class CausalLm {
 public:
  // Everything from `directory` (config.json, safetensors), with the training file's precision and
  // finetuning type applied. `vocab_size` is the tokenizer's. Errors name file, tensor, remedy.
  static Result<std::unique_ptr<CausalLm>> Load(const std::string& directory,
                                                const TrainConfig& config, int64_t vocab_size);

  struct Parameter {
    std::string name;     // its key in what is saved
    torch::Tensor value;  // fp32
    bool decay = true;
    double lr_scale = 1;
  };
  // In a fixed order. The values are the initial ones until BindFlat.
  const std::vector<Parameter>& trainable() const { return trainable_; }

  // Moves the trainable parameters into `flat` ([layout.size] fp32; entry i is trainable()[i]) and
  // makes them views of it.
  void BindFlat(torch::Tensor flat, const FlatLayout& layout);
  // Call when the flat vector has changed: refreshes the low-precision copies.
  void AfterUpdate();

  // Adds the gradient of (`weight` * sum of the token losses) to `flat_gradient` [layout.size].
  Result<PassResult> ForwardBackward(const MicroBatch& batch, const MicroBatchKey& key,
                                     torch::Tensor flat_gradient, double weight = 1);
  Result<EvaluationPass> Evaluate(const MicroBatch& batch, bool want_accuracy);
  // [rows, cols, vocab] fp32.
  torch::Tensor Logits(const MicroBatch& batch);

  LossNormalization normalization() const { return loss_.normalization(); }
  int64_t vocab_size() const { return config_.vocab_size; }

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

  CausalLm(ModelConfig config, const TrainConfig& train);
  std::vector<NamedWeight> BaseWeights();
  Status LoadBase(const std::string& directory);
  Status ResizeVocabulary(int64_t vocab_size);
  Status ChooseTrainable();
  Status AddLora();
  Status MergeAdapter(const AdapterConfig& config, const SafetensorsFile& file);
  // `start` holds the adapter to continue from; null: a fresh one.
  Status BuildLora(const SafetensorsFile* start);
  void ChooseFrozenLayers();
  void PrepareRope(int64_t positions);
  double LrScale(const std::string& name, int64_t dimensions) const;
  void CollectTrainable();

  PassContext MakePass(const MicroBatch& batch);
  torch::Tensor Hidden(const MicroBatch& batch, const PassContext& pass);
  torch::Tensor Embed(const MicroBatch& batch, const PassContext& pass);
  torch::Tensor RunLayer(DecoderLayer& layer, const torch::Tensor& x, const PassContext& pass,
                         bool input_gradient);
  Weight& output_projection() { return config_.tie_word_embeddings ? embedding_ : lm_head_; }

  ModelConfig config_;
  FinetuningType finetuning_;
  FinetuningArguments arguments_;
  ModelArguments model_arguments_;
  Precision precision_;
  uint64_t seed_;
  double neftune_alpha_ = 0;
  bool checkpointing_ = true;
  TokenLoss loss_;
  torch::ScalarType compute_type_;

  std::unique_ptr<SafetensorsSet> files_;  // frozen weights may be views into it
  Weight embedding_, final_norm_, lm_head_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  AdapterConfig adapter_;
  std::vector<std::pair<std::string, Weight*>> trained_;  // saved name, weight
  std::vector<Parameter> trainable_;
  FlatLayout layout_;
  // Layers below have nothing to train and need no gradients.
  size_t first_trained_layer_ = 0;
  torch::Tensor cos_, sin_;
};

// Keeps freed memory in the process instead of giving it back to the kernel: large tensors of a
// step would otherwise be page-faulted in anew every time. Call once, at the start of the program.
void ConfigureAllocator();

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_CAUSAL_LM_H_
