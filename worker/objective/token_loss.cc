#include "worker/objective/token_loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/check.h"
#include "worker/kernels/gemm.h"
#include "worker/kernels/tensor_rows.h"

namespace everstep {
namespace {

using torch::Tensor;

// Logits that exist at a time: about 32 MiB of fp32 with a vocabulary of 32,000.
constexpr int64_t kChunkTokens = 256;

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

// The losses of a chunk's tokens; the logits are replaced by their gradient.
void LossOfChunk(const TokenLoss& loss, Tensor& logits, const TokenLossRequest& request,
                 size_t first, double* losses) {
  const int64_t vocab = logits.size(1);
  const RowReader reader(logits, vocab);
  const RowWriter writer(logits, vocab);
  const bool is_float = logits.scalar_type() == torch::kFloat32;
  const bool gradient = request.d_hidden != nullptr;
  std::vector<char> correct(static_cast<size_t>(logits.size(0)));
  ForRows(logits.size(0), vocab, [&](int64_t row) {
    float* values = writer.Row(row, ScratchRow(0, vocab));
    if (!is_float) reader.Row(row, values);
    const int64_t label = request.labels[first + static_cast<size_t>(row)];
    if (request.correct != nullptr) {
      correct[static_cast<size_t>(row)] = LabelIsHighest(values, static_cast<size_t>(vocab), label);
    }
    losses[row] =
        TokenLossRow(loss, values, static_cast<size_t>(vocab), label, request.scale, gradient);
    if (gradient) writer.Finish(row, values);
  });
  if (request.correct != nullptr) {
    request.correct->insert(request.correct->end(), correct.begin(), correct.end());
  }
}

}  // namespace

TokenLoss TokenLoss::FromConfig(const TrainConfig& config) {
  if (config.training.label_smoothing_factor > 0) {
    return {TokenLossKind::kLabelSmoothing, config.training.label_smoothing_factor};
  }
  if (config.finetuning.use_dft_loss) return {TokenLossKind::kDynamicFineTuning, 0};
  return {};
}

double ComputeTokenLoss(const TokenLoss& loss, const Tensor& hidden,
                        const TokenLossRequest& request, Arena& arena) {
  const ArenaScope scope(arena);
  const int64_t tokens = hidden.size(0), vocab = request.projection.compute.size(0);
  EVERSTEP_CHECK(static_cast<size_t>(tokens) == request.labels.size());
  // Without bf16 instructions the product is fp32 anyway: rounding it would only cost time.
  const auto type = HasNativeBFloat16() ? hidden.scalar_type() : torch::kFloat32;
  const Tensor weight = type == torch::kFloat32 ? AsFloat(request.projection.compute, arena)
                                                : request.projection.compute;
  const Tensor buffer = arena.Take({std::min(kChunkTokens, tokens), vocab}, type);
  std::vector<double> losses(static_cast<size_t>(tokens));
  for (int64_t begin = 0; begin < tokens; begin += kChunkTokens) {
    const int64_t size = std::min(kChunkTokens, tokens - begin);
    const Tensor rows = hidden.narrow(0, begin, size);
    Tensor logits = buffer.narrow(0, 0, size);
    Gemm(logits, Plain(rows), Transposed(weight), arena);
    LossOfChunk(loss, logits, request, static_cast<size_t>(begin), losses.data() + begin);
    if (request.d_hidden == nullptr) continue;
    Tensor target = request.d_hidden->narrow(0, begin, size);
    Gemm(target, Plain(logits), Plain(weight), arena);
    if (request.projection.trainable) {
      Gemm(request.projection.gradient, Transposed(logits), Plain(rows), arena,
           /*accumulate=*/true);
    }
  }
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

}  // namespace everstep
