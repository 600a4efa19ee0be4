// How an operation ends when it cannot go on: aborts, departures, and what the others are told.
#include <gmock/gmock.h>

#include <future>

#include "tests/unit/worker/comm/cluster.h"

namespace everstep {
namespace {

using testing::Cluster;
using testing::CodeOf;
using testing::Deadline;
using ::testing::HasSubstr;
using testing::MessageOf;
using testing::OnAll;

// Receives from `from` what never comes.
Status ReceiveForever(Communicator& me, int from) {
  std::vector<std::byte> bytes(1 << 20);
  return me.Receive(from, bytes);
}

TEST(AbortTest, EndsAnOperationThatWaits) {
  Cluster cluster(2);
  auto communicators = cluster.ConnectAll(cluster.Everybody(5));
  auto waiting = std::async([&] { return ReceiveForever(*communicators[0], 1); });

  communicators[0]->Abort();

  const Status result = waiting.get();
  EXPECT_EQ(CodeOf(result), ErrorCode::kAborted);
  EXPECT_THAT(MessageOf(result), HasSubstr("generation 5"));
  EXPECT_EQ(communicators[0]->lost_rank(), -1);
}

TEST(AbortTest, EndsATransferInItsMiddle) {
  Cluster cluster(2);
  auto communicators = cluster.ConnectAll(cluster.Everybody(5));
  constexpr size_t kBytes = 64 << 20;
  std::promise<void> under_way;
  const std::vector<std::byte> out(kBytes);
  std::thread aborter([&] {
    under_way.get_future().wait();
    communicators[0]->Abort();
  });

  const auto results = OnAll(communicators, [&](Communicator& me) {
    std::vector<std::byte> in(kBytes);
    const SendPiece send{1 - me.rank(), out};
    const ReceivePiece receive{1 - me.rank(), in};
    bool told = me.rank() != 0;
    return me.Exchange({&send, 1}, {&receive, 1}, [&](int, size_t) {
      if (!std::exchange(told, true)) under_way.set_value();
    });
  });
  aborter.join();

  EXPECT_EQ(CodeOf(results[0]), ErrorCode::kAborted);
  EXPECT_EQ(CodeOf(results[1]), ErrorCode::kAborted);
  EXPECT_THAT(MessageOf(results[1]), HasSubstr("generation 5: rank 0 aborted"));
}

TEST(AbortTest, ReachesPeersWhileItsOwnCallerComputes) {
  Cluster cluster(3);
  auto communicators = cluster.ConnectAll(cluster.Everybody(5));
  auto first = std::async([&] { return communicators[0]->Barrier(); });
  auto second = std::async([&] { return communicators[1]->Barrier(); });

  communicators[2]->Abort();  // no operation is in progress there, and none is begun

  EXPECT_EQ(CodeOf(first.get()), ErrorCode::kAborted);
  EXPECT_EQ(CodeOf(second.get()), ErrorCode::kAborted);
  EXPECT_EQ(CodeOf(communicators[2]->Barrier()), ErrorCode::kAborted);
}

TEST(AbortTest, BrokenStaysBroken) {
  Cluster cluster(2);
  auto communicators = cluster.ConnectAll(cluster.Everybody(5));
  communicators[0]->Abort();
  communicators[0]->Abort();
  std::vector<std::byte> bytes(8);
  const std::vector<MutableBytes> parts = {bytes, bytes};

  EXPECT_EQ(CodeOf(communicators[0]->Barrier()), ErrorCode::kAborted);
  EXPECT_EQ(CodeOf(communicators[0]->Exchange({}, {})), ErrorCode::kAborted);
  EXPECT_EQ(CodeOf(communicators[0]->AllGather(bytes, parts)), ErrorCode::kAborted);
  EXPECT_EQ(CodeOf(communicators[0]->Broadcast(0, bytes)), ErrorCode::kAborted);
  EXPECT_EQ(CodeOf(communicators[0]->Send(1, bytes)), ErrorCode::kAborted);
  EXPECT_EQ(CodeOf(communicators[0]->Receive(1, bytes)), ErrorCode::kAborted);
}

TEST(AbortTest, ASingleMemberCanBeAbortedToo) {
  Cluster cluster(1);
  auto communicators = cluster.ConnectAll(cluster.Everybody(5));
  ASSERT_TRUE(communicators[0]->Barrier().has_value());

  communicators[0]->Abort();

  EXPECT_EQ(CodeOf(communicators[0]->Barrier()), ErrorCode::kAborted);
}

TEST(AbortTest, ARequestToStopAbortsTheConnectedCommunicator) {
  Cluster cluster(2);
  const wire::Membership membership = cluster.Everybody(5);
  std::stop_source stop;
  auto other =
      std::async([&] { return std::move(*cluster.fabric(1).Connect(membership, 1, Deadline())); });
  auto mine = cluster.fabric(0).Connect(membership, 0, Deadline(), stop.get_token());
  ASSERT_TRUE(mine.has_value()) << MessageOf(mine);
  auto waiting = std::async([&] { return ReceiveForever(**mine, 1); });

  stop.request_stop();

  EXPECT_EQ(CodeOf(waiting.get()), ErrorCode::kAborted);
}

TEST(LeaveTest, AMemberThatIsDoneDoesNotDisturbTheOthers) {
  Cluster cluster(3);
  auto communicators = cluster.ConnectAll(cluster.Everybody(5));
  std::vector<std::byte> bytes(1 << 20, std::byte{7});
  std::promise<void> gone;
  std::thread leaver([&] {
    EXPECT_TRUE(communicators[0]->Send(1, std::span(bytes).first(1000)).has_value());
    communicators[0].reset();
    gone.set_value();
  });
  gone.get_future().wait();
  leaver.join();

  // What it had sent is still received, and the two that stay can go on.
  std::vector<std::byte> received(1000);
  EXPECT_TRUE(communicators[1]->Receive(0, received).has_value());
  EXPECT_EQ(received.back(), std::byte{7});
  auto send = std::async([&] { return communicators[1]->Send(2, bytes); });
  std::vector<std::byte> more(bytes.size());
  const Status result = communicators[2]->Receive(1, more);
  EXPECT_TRUE(result.has_value()) << MessageOf(result);
  EXPECT_TRUE(send.get().has_value());
}

TEST(LeaveTest, WaitingForAMemberThatLeftIsAnErrorAndNotADeath) {
  Cluster cluster(2);
  auto communicators = cluster.ConnectAll(cluster.Everybody(5));
  communicators[0].reset();

  const Status result = communicators[1]->Barrier();

  EXPECT_EQ(CodeOf(result), ErrorCode::kAborted);
  EXPECT_THAT(MessageOf(result), HasSubstr("rank 0 has left"));
  EXPECT_EQ(communicators[1]->lost_rank(), -1);
}

}  // namespace
}  // namespace everstep
