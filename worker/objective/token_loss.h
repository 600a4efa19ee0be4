// Losses over tokens: what a language model is trained with in the stages pt and sft.
//
// The loss and the output projection are one operation: logits exist for a few hundred tokens at
// a time, never for the whole micro-batch, and only for tokens that have a label.
#ifndef EVERSTEP_WORKER_OBJECTIVE_TOKEN_LOSS_H_
#define EVERSTEP_WORKER_OBJECTIVE_TOKEN_LOSS_H_

#include <torch/torch.h>

#include <cstdint>

#include "worker/config/train_config.h"
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

struct TokenLossResult {
  torch::Tensor loss;  // scalar, fp64: the sum over tokens; backward() starts here
  int64_t tokens = 0;
  torch::Tensor correct;  // [tokens] bool: the label has the highest logit; with want_correct only
};

// hidden [tokens, hidden] after the final norm, labels [tokens] int64 (all valid); the projection's
// weight is [vocab, hidden]. With gradients on, `scale` multiplies the gradient (not the loss).
TokenLossResult ComputeTokenLoss(const TokenLoss& loss, const torch::Tensor& hidden,
                                 const torch::Tensor& labels, Weight& projection, double scale,
                                 bool want_correct);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_OBJECTIVE_TOKEN_LOSS_H_
