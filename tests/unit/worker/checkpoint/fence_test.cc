#include "worker/checkpoint/fence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/files.h"
#include "tests/unit/worker/checkpoint/checkpoint_fixture.h"

namespace everstep {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

Status Nothing() { return {}; }

TEST(FenceTest, AnOlderGenerationIsHeldBack) {
  const TempDir directory;
  GenerationFence older(directory.path(), "job");
  GenerationFence newer(directory.path(), "job");
  ASSERT_TRUE(older.Raise(3));
  EXPECT_TRUE(older.Guard(Nothing));
  ASSERT_TRUE(newer.Raise(4));
  bool ran = false;
  const Status guarded = older.Guard([&]() -> Status {
    ran = true;
    return {};
  });
  ASSERT_FALSE(guarded);
  EXPECT_EQ(guarded.error().code, ErrorCode::kAborted);
  EXPECT_THAT(guarded.error().message, HasSubstr("generation 4 has taken over"));
  EXPECT_FALSE(ran);
  EXPECT_EQ(older.Raise(3).error().code, ErrorCode::kAborted);
  EXPECT_TRUE(newer.Guard(Nothing));
  ASSERT_TRUE(older.Raise(5)) << "leads again";
  EXPECT_EQ(newer.Guard(Nothing).error().code, ErrorCode::kAborted);
}

TEST(FenceTest, TheSameProcessMovesOn) {
  const TempDir directory;
  GenerationFence fence(directory.path(), "job");
  ASSERT_TRUE(fence.Raise(1));
  ASSERT_TRUE(fence.Raise(2));
  EXPECT_TRUE(fence.Guard(Nothing));
  EXPECT_EQ(fence.generation(), 2u);
}

// A new job that uses the directory again counts from 1.
TEST(FenceTest, ANewRunTakesOverWhateverWasThere) {
  const TempDir directory;
  GenerationFence old_run(directory.path(), "job-a");
  GenerationFence new_run(directory.path(), "job-b");
  ASSERT_TRUE(old_run.Raise(7));
  ASSERT_TRUE(new_run.Raise(1));
  EXPECT_TRUE(new_run.Guard(Nothing));
  EXPECT_THAT(old_run.Guard(Nothing).error().message, HasSubstr("run 'job-b' has taken over"));
  EXPECT_EQ(old_run.Raise(8).error().code, ErrorCode::kAborted);
}

TEST(FenceTest, SurvivesItsProcessAndTakesRubbishForNone) {
  const TempDir directory;
  {
    GenerationFence fence(directory.path(), "job");
    ASSERT_TRUE(fence.Raise(9));
  }
  GenerationFence later(directory.path(), "job");
  EXPECT_EQ(later.Raise(8).error().code, ErrorCode::kAborted);
  ASSERT_TRUE(WriteFileAtomically(directory / ".everstep-fence.json", "rubbish"));
  EXPECT_TRUE(later.Raise(8));
}

// Guarded sections of all generations run one at a time, and none of an older one after a newer
// one has begun.
TEST(FenceTest, RacingGenerations) {
  const TempDir directory;
  std::atomic<int> inside{0};
  std::atomic<uint64_t> newest_run{0};
  std::vector<std::thread> threads;
  for (uint64_t generation = 1; generation <= 8; ++generation) {
    threads.emplace_back([&, generation] {
      GenerationFence fence(directory.path(), "job");
      if (!fence.Raise(generation)) return;
      for (int i = 0; i < 50; ++i) {
        (void)fence.Guard([&]() -> Status {
          EXPECT_EQ(++inside, 1);
          EXPECT_LE(newest_run.load(), generation);
          newest_run = generation;
          --inside;
          return {};
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(newest_run, 8u);
}

}  // namespace
}  // namespace everstep
