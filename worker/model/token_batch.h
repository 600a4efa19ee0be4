// A micro-batch without what does not count: padding, and tokens after a row's last label, which
// nothing that is trained on can see. The remaining tokens of all rows follow one another.
#ifndef EVERSTEP_WORKER_MODEL_TOKEN_BATCH_H_
#define EVERSTEP_WORKER_MODEL_TOKEN_BATCH_H_

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "worker/data/collate.h"
#include "worker/kernels/attention.h"

namespace everstep {

struct TokenBatch {
  int64_t rows = 0;
  int64_t cols = 0;
  // Per token.
  std::vector<int64_t> ids;
  std::vector<int64_t> positions;
  std::vector<int64_t> places;  // row * cols + column in the micro-batch
  // What attends to itself: a row, or one sequence of a neatly packed row.
  std::vector<Sequence> sequences;
  // Tokens that a label follows, ascending, and these labels. The label in a row's first column
  // follows nothing.
  std::vector<int64_t> scored;
  std::vector<int64_t> labels;
  std::vector<int64_t> scored_per_row;

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
};

// With `every_token`, all tokens but padding are kept. kInvalidArgument when an id or label is not
// below `vocab_size`.
Result<TokenBatch> MakeTokenBatch(const MicroBatch& batch, int64_t vocab_size, bool every_token);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_MODEL_TOKEN_BATCH_H_
