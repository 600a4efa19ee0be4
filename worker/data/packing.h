// Several short sequences in one row.
#ifndef EVERSTEP_WORKER_DATA_PACKING_H_
#define EVERSTEP_WORKER_DATA_PACKING_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "worker/data/example.h"

namespace everstep {

// Half-open ranges of rows that are processed together: `workers` contiguous shares (fewer when
// there are fewer rows), each cut into batches. Packing never crosses such a range, so both numbers
// decide what the rows look like.
std::vector<std::pair<size_t, size_t>> MapBatches(size_t rows, size_t workers, size_t batch_size);

struct PackingOptions {
  int64_t row_length = 2048;  // of every packed row; sequences get one less
  bool neat = false;          // number the segments, so that they do not see each other
  int32_t pad_id = 0;
};

struct PackedRows {
  std::vector<Example> rows;
  int64_t too_long = 0;  // sequences that fit into no row and were left out
};

// Fills rows greedily, largest sequence that still fits first. Rows have exactly row_length ids,
// at least one of them padding.
PackedRows PackExamples(std::vector<Example> examples, const PackingOptions& options);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_PACKING_H_
