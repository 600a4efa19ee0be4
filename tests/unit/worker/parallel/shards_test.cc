#include "worker/parallel/shards.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace everstep {
namespace {

TEST(ShardsTest, CoverTheVectorInWholeChunksAsEvenlyAsPossible) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, kNormChunk, kNormChunk + 1,
                             7 * kNormChunk - 64, 100 * kNormChunk, int64_t{1} << 40}) {
    for (int members = 1; members <= 9; ++members) {
      int64_t next = 0;
      int64_t fewest = NormChunks(size) + 1;
      int64_t most = 0;
      for (int index = 0; index < members; ++index) {
        const Range shard = ShardOf(size, members, index);
        EXPECT_EQ(shard.begin, next);
        EXPECT_TRUE(shard.begin % kNormChunk == 0 || shard.begin == size);
        EXPECT_GE(shard.size(), 0);
        next = shard.end;
        fewest = std::min(fewest, NormChunks(shard.size()));
        most = std::max(most, NormChunks(shard.size()));
      }
      EXPECT_EQ(next, size);
      EXPECT_LE(most - fewest, 1) << size << " over " << members;
    }
  }
}

}  // namespace
}  // namespace everstep
