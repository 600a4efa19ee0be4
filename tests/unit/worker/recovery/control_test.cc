#include "worker/recovery/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <future>

namespace everstep {
namespace {

constexpr std::chrono::seconds kPatience{20};

// The supervisor's end, with blocking calls.
class Peer {
 public:
  Peer() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds_), 0); }
  ~Peer() { Hang(); }
  int TakeChildEnd() { return std::exchange(fds_[1], -1); }
  void Hang() {
    if (fds_[0] >= 0) close(std::exchange(fds_[0], -1));
  }
  void Write(std::string_view bytes) {
    ASSERT_EQ(write(fds_[0], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  Result<wire::Message> Read() {
    while (true) {
      Result<wire::Message> message = decoder_.Next();
      if (message || message.error().code != ErrorCode::kNotFound) return message;
      char bytes[65536];
      const ssize_t size = read(fds_[0], bytes, sizeof(bytes));
      if (size <= 0) return Unavailable("closed");
      decoder_.Append({bytes, static_cast<size_t>(size)});
    }
  }

 private:
  int fds_[2] = {-1, -1};
  wire::FrameDecoder decoder_;
};

TEST(ControlChannelTest, CarriesMessagesBothWaysInOrder) {
  Peer peer;
  std::promise<std::vector<wire::Message>> received;
  std::vector<wire::Message> messages;
  auto channel =
      ControlChannel::Open(peer.TakeChildEnd(), {.on_message =
                                                     [&](wire::Message message) {
                                                       messages.push_back(std::move(message));
                                                       if (messages.size() == 2)
                                                         received.set_value(messages);
                                                     },
                                                 .on_closed = {}});
  ASSERT_TRUE(channel.has_value());

  ASSERT_TRUE((*channel)->Send(wire::Ready{.rank = 1, .endpoint = "e"}).has_value());
  ASSERT_TRUE((*channel)->Send(wire::Progress{.step = 5}).has_value());
  EXPECT_EQ(std::get<wire::Ready>(*peer.Read()).endpoint, "e");
  EXPECT_EQ(std::get<wire::Progress>(*peer.Read()).step, 5);

  peer.Write(wire::EncodeFrame(wire::Membership{.generation = 3, .members = {}}) +
             wire::EncodeFrame(wire::Stop{.reason = "enough"}));
  auto future = received.get_future();
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  const auto got = future.get();
  EXPECT_EQ(std::get<wire::Membership>(got[0]).generation, 3u);
  EXPECT_EQ(std::get<wire::Stop>(got[1]).reason, "enough");
}

TEST(ControlChannelTest, ASupervisorThatDoesNotReadStopsNobody) {
  Peer peer;
  auto channel = ControlChannel::Open(peer.TakeChildEnd(), {});
  ASSERT_TRUE(channel.has_value());
  const wire::Fatal large{.reason = std::string(1 << 20, 'x')};
  // Bounded: it is refused at some time, and returns at once every time.
  size_t accepted = 0;
  while ((*channel)->Send(large).has_value()) ASSERT_LT(++accepted, 20u);
  EXPECT_EQ((*channel)->Send(large).error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ((*channel)->Flush(std::chrono::milliseconds(1)).error().code,
            ErrorCode::kDeadlineExceeded);
  // Nothing that was accepted is lost once it reads again.
  for (size_t i = 0; i < accepted; ++i) ASSERT_TRUE(peer.Read().has_value());
  EXPECT_TRUE((*channel)->Flush(kPatience).has_value());
}

TEST(ControlChannelTest, SendsWhatIsQueuedBeforeItCloses) {
  Peer peer;
  auto channel = ControlChannel::Open(peer.TakeChildEnd(), {});
  ASSERT_TRUE(channel.has_value());
  std::thread reader([&] {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(peer.Read().has_value());
    EXPECT_FALSE(peer.Read().has_value());
  });
  // More than the socket itself holds.
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE((*channel)->Send(wire::Fatal{.reason = std::string(200 << 10, 'x')}).has_value());
  }
  channel->reset();
  reader.join();
}

TEST(ControlChannelTest, TellsWhenTheSupervisorIsGone) {
  Peer peer;
  std::promise<Error> closed;
  auto channel = ControlChannel::Open(
      peer.TakeChildEnd(),
      {.on_message = {}, .on_closed = [&](Error error) { closed.set_value(std::move(error)); }});
  peer.Hang();
  auto future = closed.get_future();
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(future.get().code, ErrorCode::kUnavailable);
  EXPECT_EQ((*channel)->Send(wire::Ready{}).error().code, ErrorCode::kUnavailable);
}

TEST(ControlChannelTest, GarbageClosesIt) {
  Peer peer;
  std::promise<Error> closed;
  auto channel = ControlChannel::Open(
      peer.TakeChildEnd(),
      {.on_message = {}, .on_closed = [&](Error error) { closed.set_value(std::move(error)); }});
  peer.Write("\xff\xff\xff\xff nonsense");
  auto future = closed.get_future();
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(future.get().code, ErrorCode::kDataLoss);
}

TEST(ControlChannelTest, WithoutASupervisorThereIsNone) {
  unsetenv(kControlFdVariable);
  const auto channel = ControlChannel::FromEnvironment({});
  ASSERT_TRUE(channel.has_value());
  EXPECT_EQ(*channel, nullptr);
  setenv(kControlFdVariable, "x", 1);
  EXPECT_FALSE(ControlChannel::FromEnvironment({}).has_value());
  unsetenv(kControlFdVariable);
}

}  // namespace
}  // namespace everstep
