#include "operator/kube/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace everstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

class WorkQueueTest : public testing::Test {
 protected:
  // All that is ready, without giving it back.
  std::vector<std::string> TakeAll() {
    std::vector<std::string> keys;
    while (auto key = queue_.TryGet()) keys.push_back(*key);
    return keys;
  }
  bool IsReady() {
    const auto key = queue_.TryGet();
    if (key) queue_.Done(*key);
    return key.has_value();
  }

  ManualClock clock_;
  WorkQueue queue_{{}, clock_};
};

TEST_F(WorkQueueTest, EachKeyOnceInTheOrderOfItsFirstAdd) {
  for (const char* key : {"b", "a", "b", "c", "a"}) queue_.Add(key);
  EXPECT_EQ(queue_.figures().depth, 3u);
  EXPECT_THAT(TakeAll(), ElementsAre("b", "a", "c"));
}

TEST_F(WorkQueueTest, AKeyThatIsWorkedOnIsTakenAgainOnceWhenThatIsDone) {
  queue_.Add("a");
  ASSERT_EQ(queue_.TryGet(), "a");
  queue_.Add("a");
  queue_.Add("a");
  EXPECT_FALSE(queue_.TryGet().has_value());
  queue_.Done("a");
  EXPECT_THAT(TakeAll(), ElementsAre("a"));
  queue_.Done("a");
  EXPECT_FALSE(queue_.TryGet().has_value());
}

TEST_F(WorkQueueTest, OfSeveralTimesTheEarliestCounts) {
  queue_.AddAfter("a", seconds(10));
  queue_.AddAfter("a", seconds(5));
  queue_.AddAfter("a", seconds(20));
  clock_.Advance(seconds(4));
  EXPECT_FALSE(queue_.TryGet().has_value());
  clock_.Advance(seconds(1));
  EXPECT_THAT(TakeAll(), ElementsAre("a"));
  queue_.Done("a");
  clock_.Advance(seconds(100));
  EXPECT_FALSE(queue_.TryGet().has_value());
}

TEST_F(WorkQueueTest, AnAddTakesAWaitingKeyForward) {
  queue_.AddAfter("a", seconds(10));
  queue_.Add("a");
  EXPECT_THAT(TakeAll(), ElementsAre("a"));
  queue_.Done("a");
  clock_.Advance(seconds(10));
  EXPECT_FALSE(queue_.TryGet().has_value());
}

TEST_F(WorkQueueTest, ADelayThatEndsWhileItsKeyIsWorkedOnIsNotLost) {
  queue_.Add("a");
  ASSERT_EQ(queue_.TryGet(), "a");
  queue_.AddAfter("a", seconds(1));
  clock_.Advance(seconds(2));
  EXPECT_FALSE(queue_.TryGet().has_value());
  queue_.Done("a");
  EXPECT_THAT(TakeAll(), ElementsAre("a"));
}

TEST_F(WorkQueueTest, EveryFailureInARowDoublesTheDelay) {
  for (const int delay : {5, 10, 20, 40}) {
    queue_.AddAfterFailure("a");
    clock_.Advance(milliseconds(delay - 1));
    EXPECT_FALSE(IsReady()) << delay;
    clock_.Advance(milliseconds(1));
    EXPECT_TRUE(IsReady()) << delay;
  }
  queue_.Forget("a");
  queue_.AddAfterFailure("a");
  clock_.Advance(milliseconds(5));
  EXPECT_TRUE(IsReady());
}

TEST_F(WorkQueueTest, TheDelayHasABound) {
  for (int i = 0; i < 60; ++i) {
    queue_.AddAfterFailure("a");
    clock_.Advance(seconds(1000));
    EXPECT_TRUE(IsReady()) << i;
  }
}

TEST_F(WorkQueueTest, ManyThatFailComeBackNoFasterThanTheBucketLetsThem) {
  for (int i = 0; i < 120; ++i) queue_.AddAfterFailure(std::to_string(i));
  clock_.Advance(milliseconds(5));
  EXPECT_EQ(TakeAll().size(), 100u);
  clock_.Advance(milliseconds(1000));
  EXPECT_EQ(TakeAll().size(), 10u);
  clock_.Advance(milliseconds(1000));
  EXPECT_EQ(TakeAll().size(), 10u);
}

TEST_F(WorkQueueTest, Figures) {
  queue_.Add("a");
  queue_.Add("b");
  ASSERT_EQ(queue_.TryGet(), "a");
  clock_.Advance(seconds(2));
  ASSERT_EQ(queue_.TryGet(), "b");
  clock_.Advance(seconds(1));
  queue_.AddAfterFailure("c");
  const WorkQueue::Figures figures = queue_.figures();
  EXPECT_EQ(figures.depth, 0u);
  EXPECT_EQ(figures.added, 3u);
  EXPECT_EQ(figures.retried, 1u);
  EXPECT_EQ(Seconds(figures.unfinished), 4.0);
  EXPECT_EQ(Seconds(figures.longest), 3.0);
}

TEST_F(WorkQueueTest, TheEndWakesWhoWaits) {
  std::optional<std::string> got = "something";
  std::thread waiting([&] { got = queue_.Get(); });
  queue_.End();
  waiting.join();
  EXPECT_FALSE(got.has_value());
  queue_.Add("a");
  EXPECT_FALSE(queue_.Get().has_value());
}

// Against a model: what is owed is delivered, and nothing else.
TEST_F(WorkQueueTest, NothingIsLostAndNothingIsInvented) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    ManualClock clock;
    WorkQueue queue({}, clock);
    std::mt19937 random(seed);
    std::set<std::string> owed, busy;
    std::map<std::string, TimePoint> due;
    const auto promote = [&] {
      std::erase_if(due, [&](const auto& entry) {
        if (entry.second > clock.Now()) return false;
        owed.insert(entry.first);
        return true;
      });
    };
    for (int step = 0; step < 2000; ++step) {
      const std::string key(1, static_cast<char>('a' + random() % 6));
      switch (random() % 5) {
        case 0:
          queue.Add(key);
          owed.insert(key);
          due.erase(key);
          break;
        case 1: {
          const seconds delay(1 + random() % 5);
          promote();
          queue.AddAfter(key, delay);
          if (owed.contains(key)) break;
          const auto [entry, added] = due.emplace(key, clock.Now() + delay);
          if (!added) entry->second = std::min(entry->second, clock.Now() + delay);
          break;
        }
        case 2:
          clock.Advance(seconds(random() % 3));
          break;
        case 3: {
          promote();
          const auto got = queue.TryGet();
          bool any = false;
          for (const std::string& each : owed) any = any || !busy.contains(each);
          ASSERT_EQ(got.has_value(), any) << "seed " << seed << " step " << step;
          if (!got) break;
          ASSERT_TRUE(owed.erase(*got) == 1 && busy.insert(*got).second) << *got;
          break;
        }
        case 4:
          if (busy.empty()) break;
          queue.Done(*busy.begin());
          busy.erase(busy.begin());
          break;
      }
    }
  }
}

TEST(WorkQueueThreadsTest, NoTwoThreadsHaveTheSameKeyAndEveryAddIsSeen) {
  const SystemClock clock;
  WorkQueue queue({}, clock);
  constexpr int kKeys = 8, kAdds = 4000, kWorkers = 4;
  std::array<std::atomic<int>, kKeys> added{}, seen{}, inside{};
  std::atomic<bool> together = false;
  std::vector<std::thread> workers;
  for (int i = 0; i < kWorkers; ++i) {
    workers.emplace_back([&] {
      while (auto key = queue.Get()) {
        const auto at = static_cast<size_t>(std::stoi(*key));
        if (inside[at]++ != 0) together = true;
        seen[at] = added[at].load();
        --inside[at];
        queue.Done(*key);
      }
    });
  }
  std::thread adder([&] {
    for (int i = 0; i < kAdds; ++i) {
      const size_t at = static_cast<size_t>(i) % kKeys;
      ++added[at];
      if (i % 3 == 0) {
        queue.AddAfter(std::to_string(at), std::chrono::microseconds(i % 50));
      } else {
        queue.Add(std::to_string(at));
      }
    }
  });
  adder.join();
  for (size_t at = 0; at < kKeys; ++at) {
    queue.Add(std::to_string(at));
    while (seen[at] != added[at]) std::this_thread::yield();
  }
  queue.End();
  for (std::thread& worker : workers) worker.join();
  EXPECT_FALSE(together);
}

}  // namespace
}  // namespace everstep
