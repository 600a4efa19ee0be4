#include "worker/data/collate.h"

#include <algorithm>

#include "common/check.h"

namespace everstep {
namespace {

template <typename T>
void CopyRow(const std::vector<int32_t>& from, size_t row, int64_t cols, std::vector<T>& to) {
  std::copy(from.begin(), from.end(),
            to.begin() + static_cast<long>(row) * static_cast<long>(cols));
}

}  // namespace

MicroBatch Collate(std::span<const Example* const> examples, const CollateOptions& options) {
  EVERSTEP_CHECK(!examples.empty() && options.pad_multiple > 0);
  MicroBatch batch;
  batch.rows = static_cast<int64_t>(examples.size());
  bool positions = false;
  bool segments = false;
  for (const Example* example : examples) {
    EVERSTEP_CHECK(example->ids.size() == example->labels.size());
    batch.cols = std::max(batch.cols, static_cast<int64_t>(example->ids.size()));
    positions |= !example->positions.empty();
    segments |= !example->segments.empty();
  }
  batch.cols =
      (batch.cols + options.pad_multiple - 1) / options.pad_multiple * options.pad_multiple;
  const auto cells = static_cast<size_t>(batch.rows * batch.cols);
  batch.ids.assign(cells, options.pad_id);
  batch.labels.assign(cells, kIgnoreLabel);
  if (positions) batch.positions.assign(cells, 0);
  if (segments) batch.segments.assign(cells, 0);
  for (size_t row = 0; row < examples.size(); ++row) {
    const Example& example = *examples[row];
    CopyRow(example.ids, row, batch.cols, batch.ids);
    CopyRow(example.labels, row, batch.cols, batch.labels);
    CopyRow(example.positions, row, batch.cols, batch.positions);
    CopyRow(example.segments, row, batch.cols, batch.segments);
    batch.lengths.push_back(static_cast<int32_t>(example.ids.size()));
  }
  batch.label_tokens = std::count_if(batch.labels.begin(), batch.labels.end(),
                                     [](int64_t label) { return label != kIgnoreLabel; });
  return batch;
}

}  // namespace everstep
