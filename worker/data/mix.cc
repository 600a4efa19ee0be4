#include "worker/data/mix.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace everstep {
namespace {

std::vector<RowReference> Concatenate(std::span<const size_t> sizes) {
  std::vector<RowReference> rows;
  for (size_t set = 0; set < sizes.size(); ++set) {
    for (size_t row = 0; row < sizes[set]; ++row) rows.push_back({set, row});
  }
  return rows;
}

std::vector<RowReference> RoundRobin(std::span<const size_t> sizes, bool until_all) {
  const size_t rounds = until_all ? *std::max_element(sizes.begin(), sizes.end())
                                  : *std::min_element(sizes.begin(), sizes.end());
  std::vector<RowReference> rows;
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t set = 0; set < sizes.size(); ++set) rows.push_back({set, round % sizes[set]});
  }
  return rows;
}

std::vector<RowReference> Draw(std::span<const size_t> sizes, bool until_all,
                               std::span<const double> probabilities, uint64_t seed) {
  constexpr size_t kDrawsAtOnce = 1000;  // as datasets draws them: part of the sequence
  NumpyGenerator random(seed);
  std::vector<RowReference> rows;
  std::vector<size_t> next(sizes.size(), 0);
  std::vector<bool> used_up(sizes.size(), false);
  const auto finished = [&] {
    const auto used = std::count(used_up.begin(), used_up.end(), true);
    return until_all ? used == static_cast<long>(sizes.size()) : used > 0;
  };
  // Ends with probability one: every data set has a positive probability.
  while (true) {
    for (const size_t set : random.Choice(probabilities, kDrawsAtOnce)) {
      if (finished()) return rows;
      rows.push_back({set, next[set]});
      if (++next[set] == sizes[set]) {
        used_up[set] = true;
        next[set] = 0;
      }
    }
  }
}

}  // namespace

std::vector<RowReference> Mix(std::span<const size_t> sizes, MixStrategy strategy,
                              std::span<const double> probabilities, uint64_t seed) {
  if (sizes.size() <= 1 || strategy == MixStrategy::kConcat) return Concatenate(sizes);
  EVERSTEP_CHECK(std::count(sizes.begin(), sizes.end(), size_t{0}) == 0);
  const bool until_all = strategy == MixStrategy::kInterleaveOver;
  if (probabilities.empty()) return RoundRobin(sizes, until_all);
  EVERSTEP_CHECK(probabilities.size() == sizes.size());
  return Draw(sizes, until_all, probabilities, seed);
}

Result<TrainEvalSplit> SplitTrainEval(size_t rows, double val_size, uint64_t seed) {
  const size_t eval_rows =
      val_size > 1 ? static_cast<size_t>(val_size)
                   : static_cast<size_t>(std::ceil(val_size * static_cast<double>(rows)));
  if (eval_rows >= rows || eval_rows == 0) {
    return InvalidArgument("val_size: leaves no examples to " +
                           std::string(eval_rows == 0 ? "evaluate on" : "train on") + " (" +
                           std::to_string(rows) + " examples, " + std::to_string(eval_rows) +
                           " for evaluation); choose another val_size");
  }
  const std::vector<size_t> order = NumpyGenerator(seed).Permutation(rows);
  TrainEvalSplit split;
  split.eval.assign(order.begin(), order.begin() + static_cast<long>(eval_rows));
  split.train.assign(order.begin() + static_cast<long>(eval_rows), order.end());
  return split;
}

std::vector<size_t> SampleRows(size_t rows, size_t count, NumpyLegacyRandom& random) {
  std::vector<size_t> chosen = random.Permutation(rows);
  if (count <= rows) {
    chosen.resize(count);
    return chosen;
  }
  const std::vector<size_t> more = random.Choice(rows, count - rows);
  chosen.insert(chosen.end(), more.begin(), more.end());
  return chosen;
}

}  // namespace everstep
