#include "worker/checkpoint/checkpoint_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/unit/worker/checkpoint/checkpoint_fixture.h"

namespace everstep {
namespace {

using testing::ContentOf;
using ::testing::ElementsAre;
using testing::IsStateOf;
using testing::TempDir;
namespace fs = std::filesystem;

// A store whose writes wait until they are let through, by way of its question for free space.
class SaverTest : public ::testing::Test {
 protected:
  SaverTest()
      : store_(directory_.path(), {.run = "job", .free_space = [this](const std::string&) {
                                     return AnswerWhenLet();
                                   }}) {
    EXPECT_TRUE(store_.TakeOver(1));
  }
  Result<uint64_t> AnswerWhenLet() {
    std::unique_lock lock(mutex_);
    ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return permits_ > 0; });
    --permits_;
    return free_bytes_.load();
  }
  void Let(int writes) {
    const std::lock_guard lock(mutex_);
    permits_ += writes;
    changed_.notify_all();
  }
  void AwaitAsked(int times) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_ >= times; });
  }

  TempDir directory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int permits_ = 0;
  int asked_ = 0;
  std::atomic<uint64_t> free_bytes_{1 << 30};
  CheckpointStore store_;
};

TEST_F(SaverTest, SavesInTheBackgroundAndTellsTheOutcome) {
  std::vector<int64_t> saved;
  CheckpointSaver saver(store_, [&](const SaveOutcome& outcome) {
    ASSERT_TRUE(outcome.path) << outcome.path.error().message;
    EXPECT_EQ(*outcome.path, directory_ / CheckpointName(outcome.step));
    EXPECT_GE(outcome.seconds, 0);
    saved.push_back(outcome.step);
  });
  saver.Save(ContentOf(10), {});
  AwaitAsked(1);  // Save has returned although nothing has been written
  EXPECT_FALSE(fs::exists(directory_ / "checkpoint-10"));
  Let(1);
  saver.Wait();
  EXPECT_THAT(saved, ElementsAre(10));
  EXPECT_TRUE(IsStateOf(*LoadCheckpoint(directory_ / "checkpoint-10"), 10));
}

// One under way and one waiting; the third has to wait for its place.
TEST_F(SaverTest, TheQueueIsBounded) {
  std::vector<int64_t> saved;
  CheckpointSaver saver(store_, [&](const SaveOutcome& outcome) { saved.push_back(outcome.step); });
  saver.Save(ContentOf(1), {});
  AwaitAsked(1);
  saver.Save(ContentOf(2), {});
  auto third = std::async(std::launch::async, [&] { saver.Save(ContentOf(3), {}); });
  Let(1);
  third.get();
  Let(2);
  saver.Wait();
  EXPECT_THAT(saved, ElementsAre(1, 2, 3));
}

TEST_F(SaverTest, TheSnapshotIsFreeWhenWaitReturns) {
  CheckpointSaver saver(store_, [](const SaveOutcome&) {});
  CheckpointContent content = ContentOf(1);
  const std::weak_ptr<const void> memory = content.files.memory;
  Let(1);
  saver.Save(std::move(content), {});
  saver.Wait();
  EXPECT_TRUE(memory.expired());
}

TEST_F(SaverTest, AFullDiskIsAnOutcomeAndTheNextSaveGoesOn) {
  std::vector<bool> worked;
  CheckpointSaver saver(store_, [&](const SaveOutcome& outcome) {
    worked.push_back(outcome.path.has_value());
    if (!outcome.path) {
      EXPECT_EQ(outcome.path.error().code, ErrorCode::kResourceExhausted);
    }
  });
  Let(2);
  free_bytes_ = 0;
  saver.Save(ContentOf(1), {});
  saver.Wait();
  free_bytes_ = 1 << 30;
  saver.Save(ContentOf(2), {});
  saver.Wait();
  EXPECT_THAT(worked, ElementsAre(false, true));
}

TEST_F(SaverTest, RetentionFollowsASave) {
  std::vector<std::string> removed;
  CheckpointSaver saver(store_, [&](const SaveOutcome& outcome) { removed = outcome.removed; });
  Let(3);
  for (const int64_t step : {1, 2, 3})
    saver.Save(ContentOf(step), {.total_limit = 2, .best_step = {}, .milestone_steps = 0});
  saver.Wait();
  EXPECT_THAT(removed, ElementsAre(directory_ / "checkpoint-1"));
}

TEST_F(SaverTest, TheDestructorFinishesWhatItWasGiven) {
  Let(2);
  {
    CheckpointSaver saver(store_, [](const SaveOutcome&) {});
    saver.Save(ContentOf(1), {});
    saver.Save(ContentOf(2), {});
  }
  EXPECT_TRUE(LoadCheckpoint(directory_ / "checkpoint-2"));
}

// The lead moves to the next generation while a save is under way: the save counts.
TEST_F(SaverTest, ASaveUnderWayBelongsToTheGenerationItsProcessHasMovedTo) {
  bool saved = false;
  CheckpointSaver saver(store_,
                        [&](const SaveOutcome& outcome) { saved = outcome.path.has_value(); });
  saver.Save(ContentOf(10), {});
  AwaitAsked(1);
  ASSERT_TRUE(store_.TakeOver(2));
  Let(1);
  saver.Wait();
  EXPECT_TRUE(saved);
}

}  // namespace
}  // namespace everstep
