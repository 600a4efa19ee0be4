#include "worker/parallel/shards.h"

#include <algorithm>

#include "common/check.h"

namespace everstep {

Range ShardOf(int64_t size, int members, int index) {
  EVERSTEP_CHECK(size >= 0 && members > 0 && index >= 0 && index < members);
  const int64_t chunks = NormChunks(size);
  // chunks * index cannot overflow: chunks < 2^50 for any vector that fits a machine.
  const int64_t begin = chunks * index / members * kNormChunk;
  const int64_t end = chunks * (index + 1) / members * kNormChunk;
  return {std::min(begin, size), std::min(end, size)};
}

}  // namespace everstep
