#include "worker/data/packing.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace everstep {
namespace {

// Bins of lengths: each takes the largest that still fits until none does.
std::vector<std::vector<int64_t>> FillBins(std::vector<int64_t> lengths, int64_t capacity) {
  std::sort(lengths.begin(), lengths.end());
  std::vector<std::vector<int64_t>> bins;
  while (!lengths.empty()) {
    std::vector<int64_t>& bin = bins.emplace_back();
    int64_t room = capacity;
    // Ends because every round takes a length away.
    while (true) {
      const auto above = std::upper_bound(lengths.begin(), lengths.end(), room);
      if (above == lengths.begin()) break;
      room -= *(above - 1);
      bin.push_back(*(above - 1));
      lengths.erase(above - 1);
    }
  }
  return bins;
}

void AppendSequence(const Example& sequence, int32_t segment, bool neat, Example& row) {
  row.ids.insert(row.ids.end(), sequence.ids.begin(), sequence.ids.end());
  row.labels.insert(row.labels.end(), sequence.labels.begin(), sequence.labels.end());
  const size_t begin = row.positions.size();
  row.positions.resize(row.ids.size());
  std::iota(row.positions.begin() + static_cast<long>(begin), row.positions.end(), 0);
  if (neat) row.segments.resize(row.ids.size(), segment);
}

void PadRow(const PackingOptions& options, Example& row) {
  const auto length = static_cast<size_t>(options.row_length);
  row.ids.resize(length, options.pad_id);
  row.labels.resize(length, kIgnoreLabel);
  row.positions.resize(length, 0);
  if (options.neat) row.segments.resize(length, 0);
}

}  // namespace

std::vector<std::pair<size_t, size_t>> MapBatches(size_t rows, size_t workers, size_t batch_size) {
  std::vector<std::pair<size_t, size_t>> batches;
  if (rows == 0) return batches;
  workers = std::clamp<size_t>(workers, 1, rows);
  size_t begin = 0;
  for (size_t worker = 0; worker < workers; ++worker) {
    const size_t end = begin + rows / workers + (worker < rows % workers ? 1 : 0);
    for (; begin < end; begin += batch_size) {
      batches.emplace_back(begin, std::min(begin + batch_size, end));
    }
    begin = end;
  }
  return batches;
}

PackedRows PackExamples(std::vector<Example> examples, const PackingOptions& options) {
  const int64_t capacity = options.row_length - 1;
  PackedRows packed;
  std::vector<int64_t> lengths;
  std::map<int64_t, std::vector<size_t>> by_length;
  for (size_t i = 0; i < examples.size(); ++i) {
    const auto length = static_cast<int64_t>(examples[i].ids.size());
    if (length > capacity) {
      ++packed.too_long;
      continue;
    }
    lengths.push_back(length);
    by_length[length].push_back(i);
  }
  for (const std::vector<int64_t>& bin : FillBins(std::move(lengths), capacity)) {
    Example& row = packed.rows.emplace_back();
    int32_t segment = 0;
    for (const int64_t length : bin) {
      std::vector<size_t>& candidates = by_length[length];
      AppendSequence(examples[candidates.back()], ++segment, options.neat, row);
      candidates.pop_back();
    }
    PadRow(options, row);
  }
  return packed;
}

}  // namespace everstep
