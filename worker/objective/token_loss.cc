#include "worker/objective/token_loss.h"

#include <algorithm>
#include <cmath>

#include "worker/kernels/tensor_rows.h"

namespace everstep {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Logits that exist at a time: about 16 MiB of fp32 with a vocabulary of 32,000.
constexpr int64_t kChunkTokens = 128;

// One token: its loss from the logits, which become their own gradient if `gradient` is asked for.
double TokenLossRow(const TokenLoss& loss, float* logits, size_t vocab, int64_t label, double scale,
                    bool gradient) {
  const float log_sum = rows::LogSumExp(logits, vocab);
  const double nll = static_cast<double>(log_sum) - static_cast<double>(logits[label]);
  double value = nll;
  double weight = scale;
  double target = 1;
  double floor = 0;
  if (loss.kind == TokenLossKind::kLabelSmoothing) {
    const double mean_logit =
        static_cast<double>(rows::Sum(logits, vocab)) / static_cast<double>(vocab);
    value = (1 - loss.smoothing) * nll + loss.smoothing * (log_sum - mean_logit);
    target = 1 - loss.smoothing;
    floor = loss.smoothing / static_cast<double>(vocab);
  } else if (loss.kind == TokenLossKind::kDynamicFineTuning) {
    const double probability = std::exp(-nll);
    value = nll * probability;
    weight *= probability;
  }
  if (gradient) {
    rows::SoftmaxGradient(logits, log_sum, static_cast<float>(weight), static_cast<float>(floor),
                          logits, vocab);
    logits[label] -= static_cast<float>(weight * target);
  }
  return value;
}

bool LabelIsHighest(const float* logits, size_t vocab, int64_t label) {
  return std::max_element(logits, logits + vocab) - logits == label;
}

struct Chunk {
  int64_t begin;
  int64_t size;
};

// The losses of a chunk's tokens; `logits` (compute type) are replaced by their gradient.
void LossOfChunk(const TokenLoss& loss, Tensor& logits, const int64_t* labels, double scale,
                 bool gradient, double* losses, bool* correct) {
  const int64_t vocab = logits.size(1);
  const bool is_float = logits.scalar_type() == torch::kFloat32;
  const RowReader reader(logits, vocab);
  const RowWriter writer(logits, vocab);
  ForRows(logits.size(0), vocab, [&](int64_t row) {
    float* values = ScratchRow(0, vocab);
    if (is_float) {
      values = writer.Row(row, nullptr);
    } else {
      reader.Row(row, values);
    }
    if (correct != nullptr) {
      correct[row] = LabelIsHighest(values, static_cast<size_t>(vocab), labels[row]);
    }
    losses[row] =
        TokenLossRow(loss, values, static_cast<size_t>(vocab), labels[row], scale, gradient);
    if (gradient) writer.Finish(row, values);
  });
}

// The gradient is computed with the loss (the logits are at hand then) and kept: [tokens, hidden].
struct TokenLossFunction : Function<TokenLossFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& labels,
                        int64_t weight_address, int64_t loss_address, double scale, bool gradient,
                        int64_t correct_address) {
    Weight& projection = *reinterpret_cast<Weight*>(weight_address);
    const TokenLoss& loss = *reinterpret_cast<const TokenLoss*>(loss_address);
    bool* correct = reinterpret_cast<bool*>(correct_address);
    const Tensor x = hidden.contiguous();
    const int64_t tokens = x.size(0);
    const int64_t* label = labels.const_data_ptr<int64_t>();
    Tensor losses = torch::zeros({tokens}, torch::kFloat64);
    Tensor d_hidden;
    if (gradient) d_hidden = torch::empty_like(x);
    for (int64_t begin = 0; begin < tokens; begin += kChunkTokens) {
      const int64_t size = std::min(kChunkTokens, tokens - begin);
      const Tensor rows = x.narrow(0, begin, size);
      Tensor logits = at::linear(rows, projection.compute);
      LossOfChunk(loss, logits, label + begin, scale, gradient,
                  losses.mutable_data_ptr<double>() + begin,
                  correct == nullptr ? nullptr : correct + begin);
      if (!gradient) continue;
      Tensor target = d_hidden.narrow(0, begin, size);
      at::mm_out(target, logits, projection.compute);
      if (!projection.trainable) continue;
      if (logits.scalar_type() == torch::kFloat32) {
        projection.gradient.addmm_(logits.t(), rows);
      } else {
        AddGradient(projection, at::mm(logits.t(), rows));
      }
    }
    if (gradient) context->save_for_backward({d_hidden});
    // Added in token order: one order for any number of threads.
    double sum = 0;
    for (int64_t i = 0; i < tokens; ++i) sum += losses.const_data_ptr<double>()[i];
    return torch::tensor(sum, torch::kFloat64);
  }

  // The loss is where the backward pass starts: its own gradient is 1.
  static variable_list backward(AutogradContext* context, variable_list) {
    variable_list result(7);
    result[0] = context->get_saved_variables()[0];
    return result;
  }
};

}  // namespace

TokenLoss TokenLoss::FromConfig(const TrainConfig& config) {
  if (config.training.label_smoothing_factor > 0) {
    return {TokenLossKind::kLabelSmoothing, config.training.label_smoothing_factor};
  }
  if (config.finetuning.use_dft_loss) return {TokenLossKind::kDynamicFineTuning, 0};
  return {};
}

TokenLossResult ComputeTokenLoss(const TokenLoss& loss, const torch::Tensor& hidden,
                                 const torch::Tensor& labels, Weight& projection, double scale,
                                 bool want_correct) {
  TokenLossResult result;
  result.tokens = labels.numel();
  if (want_correct) result.correct = torch::zeros({result.tokens}, torch::kBool);
  bool* correct = want_correct ? result.correct.mutable_data_ptr<bool>() : nullptr;
  result.loss = TokenLossFunction::apply(
      hidden, labels, reinterpret_cast<int64_t>(&projection), reinterpret_cast<int64_t>(&loss),
      scale, torch::GradMode::is_enabled(), reinterpret_cast<int64_t>(correct));
  return result;
}

}  // namespace everstep
