#include "operator/shell/status_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/unit/operator/shell/controller_fixture.h"

namespace everstep {
namespace {

class StatusWriterTest : public testing::Test {
 protected:
  StatusWriterTest() {
    store_ = std::move(*ObjectStore::Open(directory_.path(), clock_));
    client_ = std::make_unique<HookedClient>(*store_);
    for (const char* job : {"a", "b"}) CreateJob(job);
  }
  void CreateJob(const std::string& name) {
    const auto created =
        store_->Create({{"kind", names::kKind}, {"metadata", {{"name", name}}}, {"spec", {}}});
    ASSERT_TRUE(created.has_value()) << created.error().message;
  }
  void Start(int threads) { writer_ = std::make_unique<StatusWriter>(*client_, threads); }
  OrderedJson StatusOf(const std::string& job) {
    return store_->Get(names::kKind, job)->value("status", OrderedJson::object());
  }
  static StatusWriter::Change Set(const std::string& key, int value) {
    return [=](OrderedJson& status) {
      status[key] = value;
      return true;
    };
  }

  TempDir directory_;
  SystemClock clock_;
  std::unique_ptr<ObjectStore> store_;
  std::unique_ptr<HookedClient> client_;
  std::unique_ptr<StatusWriter> writer_;
};

TEST_F(StatusWriterTest, WithoutThreadsItIsWrittenBeforePostReturns) {
  Start(0);
  writer_->Post("a", Set("x", 1));
  EXPECT_EQ(StatusOf("a")["x"], 1);
  EXPECT_FALSE(StatusOf("b").contains("x"));
}

TEST_F(StatusWriterTest, WhatWaitsIsWrittenTogetherAndInOrder) {
  std::promise<void> entered, release;
  std::atomic<int> writes = 0;
  client_->before_update_status = [&](const OrderedJson&) -> Status {
    if (writes++ == 0) {
      entered.set_value();
      release.get_future().wait();
    }
    return {};
  };
  Start(2);
  writer_->Post("a", Set("x", 1));
  entered.get_future().wait();
  for (int i = 2; i <= 5; ++i) writer_->Post("a", Set("x", i));
  release.set_value();
  ASSERT_TRUE(writer_->Write("a", Set("y", 1)).has_value());
  EXPECT_EQ(StatusOf("a")["x"], 5);
  // All that came while the first was under way: one more write, or two when the last came late.
  EXPECT_LE(writes, 3);
}

TEST_F(StatusWriterTest, JobsDoNotWaitForEachOther) {
  std::promise<void> entered, release;
  client_->before_update_status = [&](const OrderedJson& object) -> Status {
    if (object["metadata"]["name"] != "a") return {};
    entered.set_value();
    release.get_future().wait();
    return {};
  };
  Start(2);
  writer_->Post("a", Set("x", 1));
  entered.get_future().wait();
  EXPECT_TRUE(writer_->Write("b", Set("x", 1)).has_value());
  release.set_value();
}

TEST_F(StatusWriterTest, AConflictIsDecidedAnewOnTheNewestStatus) {
  std::atomic<bool> first = true;
  client_->before_update_status = [&](const OrderedJson&) -> Status {
    if (!first.exchange(false)) return {};
    OrderedJson object = *store_->Get(names::kKind, "a");
    object["status"] = {{"x", 10}};
    EXPECT_TRUE(store_->UpdateStatus(object).has_value());
    return {};
  };
  Start(1);
  const Status written = writer_->Write("a", [](OrderedJson& status) {
    status["x"] = status.value("x", 0) + 1;
    return true;
  });
  EXPECT_TRUE(written.has_value());
  EXPECT_EQ(StatusOf("a")["x"], 11);
}

TEST_F(StatusWriterTest, AChangeThatDeclinesLeavesTheOthers) {
  Start(0);
  const auto version = [&] {
    return (*store_->Get(names::kKind, "a"))["metadata"]["resourceVersion"];
  };
  const OrderedJson before = version();
  writer_->Post("a", [](OrderedJson& status) {
    status["half"] = "done";
    return false;
  });
  EXPECT_EQ(version(), before);
  EXPECT_FALSE(StatusOf("a").contains("half"));
}

TEST_F(StatusWriterTest, AFactThatCouldNotBeTakenIsWrittenLater) {
  std::atomic<int> refusals = 1;
  client_->before_update_status = [&](const OrderedJson&) -> Status {
    if (refusals-- > 0) return Unavailable("the API server is away");
    return {};
  };
  Start(1);
  writer_->Post("a", Set("finished", 1));
  EXPECT_TRUE(AwaitTrue([&] { return StatusOf("a").contains("finished"); }));
}

TEST_F(StatusWriterTest, WhoeverWaitsIsToldAndDecides) {
  client_->before_update_status = [](const OrderedJson&) -> Status {
    return Unavailable("the API server is away");
  };
  Start(1);
  const Status written = writer_->Write("a", Set("x", 1));
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(writer_->Write("gone", Set("x", 1)).error().code, ErrorCode::kNotFound);
}

TEST_F(StatusWriterTest, OfOneSlotOnlyTheNewestWaits) {
  std::promise<void> entered, release;
  std::atomic<int> applied = 0;
  client_->before_update_status = [&, first = true](const OrderedJson&) mutable -> Status {
    if (std::exchange(first, false)) {
      entered.set_value();
      release.get_future().wait();
    }
    return {};
  };
  Start(1);
  writer_->Post("a", Set("x", 1));
  entered.get_future().wait();
  for (int i = 1; i <= 5; ++i) {
    writer_->PostNewest("a", "progress", [&applied, i](OrderedJson& status) {
      ++applied;
      status["step"] = i;
      return true;
    });
  }
  release.set_value();
  ASSERT_TRUE(AwaitTrue([&] { return StatusOf("a").value("step", 0) == 5; }));
  EXPECT_EQ(applied, 1);
}

TEST_F(StatusWriterTest, WhatIsLeftAtTheEndIsTold) {
  std::promise<void> entered, release;
  client_->before_update_status = [&, first = true](const OrderedJson&) mutable -> Status {
    if (!std::exchange(first, false)) return {};
    entered.set_value();
    release.get_future().wait();
    return {};
  };
  Start(1);
  writer_->Post("a", Set("x", 1));
  entered.get_future().wait();
  Status told;
  writer_->Post("a", Set("y", 1), [&](const Status& status) { told = status; });
  std::thread end([&] { writer_.reset(); });
  release.set_value();
  end.join();
  // Written or told that it is not: never silent.
  EXPECT_EQ(told.has_value(), StatusOf("a").contains("y"));
}

}  // namespace
}  // namespace everstep
