// Which rows of several data sets make up the training and the evaluation set.
#ifndef EVERSTEP_WORKER_DATA_MIX_H_
#define EVERSTEP_WORKER_DATA_MIX_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/result.h"
#include "worker/config/train_config.h"
#include "worker/data/random.h"

namespace everstep {

struct RowReference {
  size_t set = 0;
  size_t row = 0;
};

// The rows of data sets of the given sizes, mixed. Interleaving goes round in turn without
// probabilities, else draws the next data set from default_rng(seed), and ends when the first
// (kInterleaveUnder) or the last (kInterleaveOver) data set has been used up; those used up
// earlier start again. Sizes are positive when interleaving.
std::vector<RowReference> Mix(std::span<const size_t> sizes, MixStrategy strategy,
                              std::span<const double> probabilities, uint64_t seed);

struct TrainEvalSplit {
  std::vector<size_t> train;
  std::vector<size_t> eval;
};

// `val_size` above 1 is a number of rows, else a share. An error when either side would be empty.
Result<TrainEvalSplit> SplitTrainEval(size_t rows, double val_size, uint64_t seed);

// `count` of `rows` row numbers: a permutation, topped up with repeated rows when count is larger.
// Data sets draw one after the other from the same generator.
std::vector<size_t> SampleRows(size_t rows, size_t count, NumpyLegacyRandom& random);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_MIX_H_
