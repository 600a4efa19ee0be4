// Who reduces which part of a flat vector. Pure arithmetic.
#ifndef EVERSTEP_WORKER_PARALLEL_SHARDS_H_
#define EVERSTEP_WORKER_PARALLEL_SHARDS_H_

#include <cstdint>

namespace everstep {

// Sums of squares are taken over fixed chunks of this many elements, so that they do not depend on
// the number of members. Shards are cut only between chunks: each chunk has one owner.
inline constexpr int64_t kNormChunk = 16384;

// A half-open range of elements.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// Number of chunks in a vector of `size` elements (the last one may be short).
constexpr int64_t NormChunks(int64_t size) { return (size + kNormChunk - 1) / kNormChunk; }

// The shard of member `index` of `members`: whole chunks, their numbers differ by at most one. The
// shards of all members are adjacent, in order, and cover [0, size); some may be empty.
Range ShardOf(int64_t size, int members, int index);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_PARALLEL_SHARDS_H_
