// Who may connect, who is refused and how, and what the caller is told.
#include "worker/comm/tcp_fabric.h"

#include <gmock/gmock.h>

#include <future>
#include <random>

#include "tests/unit/worker/comm/cluster.h"
#include "tests/unit/worker/comm/raw_peer.h"

namespace everstep {
namespace {

using testing::Cluster;
using testing::CodeOf;
using testing::Deadline;
using testing::ExpectAllOk;
using ::testing::HasSubstr;
using testing::LoopbackOptions;
using testing::MessageOf;
using testing::OnAll;
using testing::RawPeer;
using ::testing::StartsWith;

TimePoint Soon() { return std::chrono::steady_clock::now() + std::chrono::milliseconds(50); }

// What rank 1 of `membership` says to rank 0.
CommFrame HelloOf(const wire::Membership& membership, FrameKind channel) {
  const TcpFabricOptions options = LoopbackOptions();
  return {.kind = channel,
          .job = JobHash(options.job, options.token),
          .generation = membership.generation,
          .sequence = MembershipDigest(membership),
          .sender = 1,
          .argument = 0};
}

// Rank 0 connected with a rank 1 that is played by the test.
class HandmadePeerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    data_.Say(HelloOf(membership_, FrameKind::kHelloData));
    control_.Say(HelloOf(membership_, FrameKind::kHelloControl));
    auto communicator = cluster_.fabric(0).Connect(membership_, 0, Deadline());
    ASSERT_TRUE(communicator.has_value()) << MessageOf(communicator);
    communicator_ = std::move(*communicator);
    EXPECT_EQ(data_.Hear()->kind, FrameKind::kWelcome);
    EXPECT_EQ(control_.Hear()->kind, FrameKind::kWelcome);
  }

  Cluster cluster_{2};
  const wire::Membership membership_ = cluster_.Everybody(5);
  RawPeer data_{cluster_.fabric(0).endpoint()};
  RawPeer control_{cluster_.fabric(0).endpoint()};
  std::unique_ptr<Communicator> communicator_;
};

TEST_F(HandmadePeerTest, ADroppedConnectionIsALostRank) {
  data_.Close();  // the control connection stays, and says nothing

  const Status result = communicator_->Barrier();

  EXPECT_EQ(CodeOf(result), ErrorCode::kUnavailable);
  EXPECT_THAT(MessageOf(result), HasSubstr("generation 5: lost rank 1"));
  EXPECT_EQ(communicator_->lost_rank(), 1);
  EXPECT_EQ(control_.Hear()->argument, 1) << "the abort names whom it lost";
}

TEST_F(HandmadePeerTest, ADroppedControlConnectionIsALostRank) {
  control_.Close();

  EXPECT_EQ(CodeOf(communicator_->Barrier()), ErrorCode::kUnavailable);
  EXPECT_EQ(communicator_->lost_rank(), 1);
}

TEST_F(HandmadePeerTest, APeerThatAbortsNamesWhomItLost) {
  CommFrame farewell = HelloOf(membership_, FrameKind::kAbort);
  farewell.argument = 6;
  control_.Say(farewell);

  const Status result = communicator_->Barrier();

  EXPECT_EQ(CodeOf(result), ErrorCode::kAborted);
  EXPECT_THAT(MessageOf(result), HasSubstr("rank 1 aborted: it lost rank 6"));
  EXPECT_EQ(communicator_->lost_rank(), 6);
}

TEST_F(HandmadePeerTest, AFrameOfAnOlderGenerationIsRefused) {
  CommFrame frame = HelloOf(membership_, FrameKind::kBarrier);
  frame.generation = 4;
  frame.sequence = 0;
  data_.Say(frame);

  EXPECT_EQ(CodeOf(communicator_->Barrier()), ErrorCode::kAborted);
}

TEST_F(HandmadePeerTest, AFrameOutOfSequenceIsRefused) {
  CommFrame frame = HelloOf(membership_, FrameKind::kBarrier);
  frame.sequence = 1;
  data_.Say(frame);

  EXPECT_EQ(CodeOf(communicator_->Barrier()), ErrorCode::kInternal);
}

TEST_F(HandmadePeerTest, GarbageOnAConnectionIsAnError) {
  data_.SayText(std::string(kFrameBytes, 'x'));

  const Status result = communicator_->Barrier();

  EXPECT_EQ(CodeOf(result), ErrorCode::kInternal);
  EXPECT_THAT(MessageOf(result), HasSubstr("rank 1 sent bytes that are no frame of this job"));
}

TEST_F(HandmadePeerTest, ASecondConnectionOfTheSameMemberIsRefused) {
  RawPeer again(cluster_.fabric(0).endpoint());
  again.Say(HelloOf(membership_, FrameKind::kHelloData));

  const auto answer = again.Hear();

  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->kind, FrameKind::kRefused);
  EXPECT_EQ(answer->argument, static_cast<int>(Refusal::kNotExpected));
}

TEST(FenceTest, AnOlderGenerationIsRefusedWithTheNewest) {
  Cluster cluster(2);
  auto alone = cluster.ConnectAll(cluster.Members(9, {0}));
  RawPeer stale(cluster.fabric(0).endpoint());
  stale.Say(HelloOf(cluster.Everybody(8), FrameKind::kHelloData));

  const auto answer = stale.Hear();

  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->kind, FrameKind::kRefused);
  EXPECT_EQ(answer->argument, static_cast<int>(Refusal::kOlderGeneration));
  EXPECT_EQ(answer->generation, 9U);
}

TEST(FenceTest, ConnectTellsThatItsGenerationIsOver) {
  Cluster cluster(2);
  auto alone = cluster.ConnectAll(cluster.Members(9, {0}));

  const auto result = cluster.fabric(1).Connect(cluster.Everybody(8), 1, Deadline());

  EXPECT_EQ(CodeOf(result), ErrorCode::kAborted);
  EXPECT_THAT(MessageOf(result), HasSubstr("generation 8: rank 0 is in generation 9 already"));
}

TEST(FenceTest, AGenerationIsConnectedOnce) {
  Cluster cluster(1);
  auto first = cluster.ConnectAll(cluster.Everybody(3));
  for (const uint64_t generation : {2U, 3U}) {
    const auto again = cluster.fabric(0).Connect(cluster.Everybody(generation), 0, Deadline());
    EXPECT_EQ(CodeOf(again), ErrorCode::kFailedPrecondition);
  }
}

TEST(FenceTest, ANewerGenerationWaitsUntilItIsHeardOf) {
  Cluster cluster(2);
  const wire::Membership next = cluster.Everybody(4);
  auto early = std::async([&] { return cluster.fabric(1).Connect(next, 1, Deadline()); });
  // Rank 0 is still busy with an older generation when the hello of the next one arrives.
  auto old = cluster.ConnectAll(cluster.Members(3, {0}));
  while (cluster.fabric(0).newest_generation_seen() < 4) std::this_thread::yield();
  EXPECT_TRUE(old[0]->Barrier().has_value()) << "it may finish what it is doing";

  const auto late = cluster.fabric(0).Connect(next, 0, Deadline());

  EXPECT_TRUE(late.has_value()) << MessageOf(late);
  EXPECT_TRUE(early.get().has_value());
}

TEST(FenceTest, MembershipsThatDifferWithinAGenerationNeverMix) {
  Cluster cluster(2);
  wire::Membership other = cluster.Everybody(4);
  other.members[1].logical_ranks = {};
  auto mine = std::async([&] { return cluster.fabric(0).Connect(other, 0, Deadline()); });

  const auto theirs = cluster.fabric(1).Connect(cluster.Everybody(4), 1, Deadline());

  EXPECT_EQ(CodeOf(theirs), ErrorCode::kInternal);
  EXPECT_EQ(CodeOf(mine.get()), ErrorCode::kInternal);
}

TEST(StrangerTest, AnotherJobIsRefused) {
  Cluster cluster(1);
  TcpFabricOptions options = LoopbackOptions();
  options.token = "another secret";
  auto stranger = TcpFabric::Create(options);
  ASSERT_TRUE(stranger.has_value());
  wire::Membership membership = cluster.Everybody(1);
  membership.members.push_back(
      {.rank = 1, .endpoint = (*stranger)->endpoint(), .logical_ranks = {}, .newcomer = false});

  const auto result = (*stranger)->Connect(membership, 1, Deadline());

  EXPECT_EQ(CodeOf(result), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(result), HasSubstr("another job"));
}

TEST(StrangerTest, GarbageOnThePortDoesNotHurt) {
  Cluster cluster(3);
  std::mt19937 random(1);
  std::vector<std::unique_ptr<RawPeer>> visitors;
  for (int i = 0; i < 50; ++i) {
    auto visitor = std::make_unique<RawPeer>(cluster.fabric(i % 3).endpoint());
    std::string text(random() % 200, '\0');
    for (char& c : text) c = static_cast<char>(random());
    visitor->SayText(text);
    if (i % 2 == 0) visitor->Close();
    visitors.push_back(std::move(visitor));
  }
  RawPeer(cluster.fabric(0).endpoint()).SayText("GET / HTTP/1.1\r\nHost: everstep\r\n\r\n");

  auto communicators = cluster.ConnectAll(cluster.Everybody(1));

  ExpectAllOk(OnAll(communicators, [](Communicator& me) { return me.Barrier(); }));
}

TEST(ConnectTest, NamesWhoIsMissingAtTheDeadline) {
  Cluster cluster(3);
  const wire::Membership membership = cluster.Everybody(2);

  const auto result = cluster.fabric(1).Connect(membership, 1, Soon());

  EXPECT_EQ(CodeOf(result), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(MessageOf(result), StartsWith("generation 2: not connected in time: rank 0 at "));
  EXPECT_THAT(MessageOf(result), HasSubstr("rank 2 at " + cluster.fabric(2).endpoint()));
}

TEST(ConnectTest, NamesAPeerThatRefuses) {
  Cluster cluster(2);
  wire::Membership membership = cluster.Everybody(2);
  {
    auto gone = TcpFabric::Create(LoopbackOptions());
    membership.members[0].endpoint = (*gone)->endpoint();
  }

  const auto result = cluster.fabric(1).Connect(membership, 1, Soon());

  EXPECT_THAT(MessageOf(result), HasSubstr("Connection refused"));
}

TEST(ConnectTest, CanBeStopped) {
  Cluster cluster(2);
  std::stop_source stop;
  auto waiting = std::async([&] {
    return cluster.fabric(0).Connect(cluster.Everybody(2), 0, Deadline(), stop.get_token());
  });

  stop.request_stop();

  EXPECT_EQ(CodeOf(waiting.get()), ErrorCode::kAborted);
}

TEST(ConnectTest, OnlyForMembers) {
  Cluster cluster(2);

  const auto result = cluster.fabric(1).Connect(cluster.Members(2, {0}), 1, Deadline());

  EXPECT_EQ(CodeOf(result), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(MessageOf(result), "rank 1 is no member of generation 2");
}

TEST(ConnectTest, ExplainsABadEndpoint) {
  Cluster cluster(2);
  wire::Membership membership = cluster.Everybody(2);
  const std::pair<const char*, const char*> cases[] = {
      {"10.0.0.1", "has no port"},
      {"10.0.0.1:0", "the port must be"},
      {"10.0.0.1:70000", "the port must be"},
      {"10.0.0.1:80x", "the port must be"},
      {"worker-0:80", "'worker-0' is no IP address"}};
  for (const auto& [endpoint, expected] : cases) {
    membership.members[0].endpoint = endpoint;
    const auto result = cluster.fabric(1).Connect(membership, 1, Deadline());
    EXPECT_EQ(CodeOf(result), ErrorCode::kInvalidArgument);
    EXPECT_THAT(MessageOf(result), HasSubstr(expected));
    EXPECT_THAT(MessageOf(result), HasSubstr(endpoint));
  }
}

TEST(ListenTest, ExplainsAPortInUse) {
  Cluster cluster(1);
  TcpFabricOptions options = LoopbackOptions();
  options.port = ParseEndpoint(cluster.fabric(0).endpoint())->port();

  const auto result = TcpFabric::Create(options);

  EXPECT_EQ(CodeOf(result), ErrorCode::kUnavailable);
  EXPECT_THAT(MessageOf(result), HasSubstr("the port is in use"));
}

TEST(ListenTest, ExplainsAnAddressThatIsNotHere) {
  TcpFabricOptions options = LoopbackOptions();
  for (const char* ip : {"192.0.2.1", "pod-0"}) {
    options.bind_ip = ip;
    const auto result = TcpFabric::Create(options);
    EXPECT_EQ(CodeOf(result), ErrorCode::kInvalidArgument);
    EXPECT_THAT(MessageOf(result), HasSubstr("EVERSTEP_POD_IP"));
  }
}

TEST(ListenTest, AcceptsIpVersion6) {
  TcpFabricOptions options = LoopbackOptions();
  options.bind_ip = "::1";
  const auto fabric = TcpFabric::Create(options);
  if (!fabric) GTEST_SKIP() << "no IPv6 here: " << MessageOf(fabric);
  EXPECT_THAT((*fabric)->endpoint(), StartsWith("[::1]:"));
  EXPECT_EQ(FormatEndpoint(*ParseEndpoint((*fabric)->endpoint())), (*fabric)->endpoint());
}

TEST(RegroupTest, TheSameFabricsServeManyGenerations) {
  Cluster cluster(4);
  const std::vector<int> survivors[] = {{0, 1, 2, 3}, {0, 2, 3}, {2, 3}, {1, 2, 3}, {0, 1, 2, 3}};
  uint64_t generation = 0;
  for (const std::vector<int>& ranks : survivors) {
    auto communicators = cluster.ConnectAll(cluster.Members(++generation, ranks));
    ExpectAllOk(OnAll(communicators, [](Communicator& me) { return me.Barrier(); }));
    communicators.back()->Abort();
    for (const Status& result :
         OnAll(communicators, [](Communicator& me) { return me.Barrier(); })) {
      EXPECT_EQ(CodeOf(result), ErrorCode::kAborted);
    }
  }
}

// Members hear of generations at different moments, and of several in quick succession. Each
// news ends what the member is doing, whether it connects or talks; the last generation works.
TEST(RegroupTest, MembersAtDifferentSpeedsMeetInTheNewestGeneration) {
  constexpr int kMembers = 4;
  constexpr uint64_t kLast = 12;
  for (uint32_t seed = 0; seed < 5; ++seed) {
    Cluster cluster(kMembers);
    std::vector<std::thread> threads;
    std::atomic<int> finished{0};
    for (int rank = 0; rank < kMembers; ++rank) {
      threads.emplace_back([&, rank] {
        std::mt19937 random(100 * seed + rank);
        for (uint64_t generation = 1; generation <= kLast; ++generation) {
          if (generation < kLast && random() % 4 == 0) continue;  // news came twice at once
          std::stop_source stop;
          // Only to make the members' paths differ: nothing depends on it, and unlike a number of
          // yields it stays short on a busy machine.
          const auto jitter = std::chrono::microseconds(random() % 3000);
          std::thread news([&, last = generation == kLast] {
            std::this_thread::sleep_for(jitter);
            if (!last) stop.request_stop();
          });
          auto communicator = cluster.fabric(rank).Connect(cluster.Everybody(generation), rank,
                                                           Deadline(), stop.get_token());
          Status result;
          while (generation < kLast && communicator && result) result = (*communicator)->Barrier();
          if (generation == kLast) {
            EXPECT_TRUE(communicator.has_value()) << MessageOf(communicator);
            if (communicator) result = (*communicator)->Barrier();
            EXPECT_TRUE(result.has_value()) << MessageOf(result);
            finished += result.has_value() ? 1 : 0;
          }
          news.join();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(finished.load(), kMembers);
  }
}

}  // namespace
}  // namespace everstep
