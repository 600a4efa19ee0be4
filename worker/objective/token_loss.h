// Losses over tokens: what a language model is trained with in the stages pt and sft.
//
// The loss and the output projection are one operation: logits exist for some hundred tokens at a
// time, never for the whole micro-batch, and only for tokens that have a label.
#ifndef EVERSTEP_WORKER_OBJECTIVE_TOKEN_LOSS_H_
#define EVERSTEP_WORKER_OBJECTIVE_TOKEN_LOSS_H_

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <vector>

#include "worker/config/train_config.h"
#include "worker/kernels/arena.h"
#include "worker/kernels/weight.h"

namespace everstep {

enum class TokenLossKind {
  kCrossEntropy,
  // (1 - e) * CE + e * mean over the vocabulary of -log p (Szegedy et al., 2016, section 7).
  kLabelSmoothing,
  // CE * p(label) with p held constant: dynamic fine-tuning (Wu et al., 2025, eq. 9).
  kDynamicFineTuning,
};

// How micro-batches' losses add up to a step's loss.
enum class LossNormalization {
  kGlobalTokens,     // sum over tokens / label tokens of the global batch
  kMicroBatchMeans,  // sum over micro-batches of their own mean, averaged over logical ranks
};

struct TokenLoss {
  TokenLossKind kind = TokenLossKind::kCrossEntropy;
  double smoothing = 0;  // e

  static TokenLoss FromConfig(const TrainConfig& config);
  LossNormalization normalization() const {
    // transformers' label smoother averages over its own micro-batch.
    return kind == TokenLossKind::kLabelSmoothing ? LossNormalization::kMicroBatchMeans
                                                  : LossNormalization::kGlobalTokens;
  }
};

// The output projection's weight [vocab, hidden], and what is wanted of it.
struct TokenLossRequest {
  Weight& projection;
  std::span<const int64_t> labels;  // [tokens], all valid
  // Multiplies the gradient, not the loss.
  double scale = 1;
  // The gradient of the hidden states goes here ([tokens, hidden], their type), and that of the
  // projection, if it is trained, is added to its place. Null: no gradients.
  torch::Tensor* d_hidden = nullptr;
  // Filled with whether the label has the highest logit, unless null.
  std::vector<bool>* correct = nullptr;
};

// hidden: [tokens, hidden] after the final norm, fp32 or bf16. Returns the sum of the tokens'
// losses, taken in token order.
double ComputeTokenLoss(const TokenLoss& loss, const torch::Tensor& hidden,
                        const TokenLossRequest& request, Arena& arena);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_OBJECTIVE_TOKEN_LOSS_H_
