// Puts examples into one rectangular micro-batch, padded on the right.
#ifndef EVERSTEP_WORKER_DATA_COLLATE_H_
#define EVERSTEP_WORKER_DATA_COLLATE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "worker/data/example.h"

namespace everstep {

struct CollateOptions {
  int32_t pad_id = 0;
  int64_t pad_multiple = 8;  // cols is a multiple of it
};

// All matrices are row-major [rows, cols].
struct MicroBatch {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<int64_t> ids;
  std::vector<int64_t> labels;     // kIgnoreLabel on padding
  std::vector<int64_t> positions;  // empty = 0..cols-1 in every row
  // Empty = plain causal attention. Else attention is causal within a segment number only; 0 is
  // padding.
  std::vector<int32_t> segments;
  std::vector<int32_t> lengths;  // of each row, before it was padded
  // Labels other than kIgnoreLabel, counted before the shift by one (LLaMA-Factory's
  // num_items_in_batch): the loss of a step is the sum over its tokens divided by this.
  int64_t label_tokens = 0;
};

MicroBatch Collate(std::span<const Example* const> examples, const CollateOptions& options);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_COLLATE_H_
