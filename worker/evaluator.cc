#include "worker/evaluator.h"

#include <algorithm>
#include <numeric>

namespace everstep {
namespace {

// What one batch contributes. Plain values: they are gathered as bytes.
struct BatchResult {
  double mean_loss = 0;     // over the batch's label tokens
  double accuracy_sum = 0;  // over the batch's rows
  int64_t rows = 0;
};

Result<BatchResult> EvaluateBatch(Workload& workload, const std::vector<Example>& examples,
                                  size_t first, size_t end) {
  std::vector<size_t> indices(end - first);
  std::iota(indices.begin(), indices.end(), first);
  ASSIGN_OR_RETURN(const EvaluationPass pass,
                   workload.model().Evaluate(workload.CollateRows(examples, indices),
                                             workload.config().finetuning.compute_accuracy));
  BatchResult result;
  result.rows = static_cast<int64_t>(indices.size());
  result.mean_loss =
      pass.scored_tokens > 0 ? pass.loss_sum / static_cast<double>(pass.scored_tokens) : 0.0;
  result.accuracy_sum = std::accumulate(pass.row_accuracy.begin(), pass.row_accuracy.end(), 0.0);
  return result;
}

// Batches of all members, in batch order, from each member's own in its order.
std::vector<BatchResult> Interleave(const std::vector<std::vector<BatchResult>>& by_member,
                                    size_t batches) {
  std::vector<BatchResult> ordered;
  for (size_t batch = 0; batch < batches; ++batch) {
    ordered.push_back(by_member[batch % by_member.size()][batch / by_member.size()]);
  }
  return ordered;
}

Evaluation Summarize(const std::string& name, const std::vector<BatchResult>& batches,
                     bool with_accuracy) {
  Evaluation evaluation;
  evaluation.name = name;
  double loss = 0;
  double accuracy = 0;
  for (const BatchResult& batch : batches) {
    loss += batch.mean_loss * static_cast<double>(batch.rows);
    accuracy += batch.accuracy_sum;
    evaluation.examples += batch.rows;
  }
  const auto count = static_cast<double>(std::max<int64_t>(1, evaluation.examples));
  evaluation.loss = loss / count;
  if (with_accuracy) evaluation.accuracy = accuracy / count;
  return evaluation;
}

}  // namespace

Result<std::vector<Evaluation>> Evaluate(Workload& workload, Communicator& communicator) {
  const auto batch_size =
      static_cast<size_t>(workload.config().training.per_device_eval_batch_size);
  const auto members = static_cast<size_t>(communicator.size());
  const auto me = static_cast<size_t>(communicator.rank());
  std::vector<Evaluation> evaluations;
  for (const auto& [name, examples] : workload.data().eval) {
    const size_t batches = (examples.size() + batch_size - 1) / batch_size;
    std::vector<std::vector<BatchResult>> by_member(members);
    std::vector<MutableBytes> parts;
    for (size_t member = 0; member < members; ++member) {
      by_member[member].resize((batches + members - 1 - member) / members);
      parts.push_back(AsMutableBytes(std::span(by_member[member])));
    }
    for (size_t i = 0; i < by_member[me].size(); ++i) {
      const size_t first = (i * members + me) * batch_size;
      ASSIGN_OR_RETURN(
          by_member[me][i],
          EvaluateBatch(workload, examples, first, std::min(first + batch_size, examples.size())));
    }
    RETURN_IF_ERROR(communicator.AllGather(parts[me], parts));
    evaluations.push_back(Summarize(name, Interleave(by_member, batches),
                                    workload.config().finetuning.compute_accuracy));
  }
  return evaluations;
}

}  // namespace everstep
