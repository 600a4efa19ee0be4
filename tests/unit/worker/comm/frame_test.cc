#include "worker/comm/frame.h"

#include <gtest/gtest.h>

#include "worker/comm/tcp_stream.h"

namespace everstep {
namespace {

TEST(FrameTest, SurvivesTheWire) {
  const CommFrame frame{.kind = FrameKind::kAllGather,
                        .job = 0x1122334455667788,
                        .generation = 3,
                        .sequence = 4,
                        .sender = 5,
                        .argument = -1,
                        .length = 1ULL << 40};

  const auto decoded = DecodeCommFrame(EncodeCommFrame(frame));

  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->kind, frame.kind);
  EXPECT_EQ(decoded->job, frame.job);
  EXPECT_EQ(decoded->generation, frame.generation);
  EXPECT_EQ(decoded->sequence, frame.sequence);
  EXPECT_EQ(decoded->sender, frame.sender);
  EXPECT_EQ(decoded->argument, frame.argument);
  EXPECT_EQ(decoded->length, frame.length);
}

TEST(FrameTest, OtherBytesAndOtherVersionsAreRefused) {
  FrameBytes bytes = EncodeCommFrame({});
  bytes[6] = std::byte{99};
  EXPECT_FALSE(DecodeCommFrame(bytes).has_value());
  bytes = EncodeCommFrame({});
  bytes[0] = std::byte{'G'};
  EXPECT_FALSE(DecodeCommFrame(bytes).has_value());
}

TEST(FrameTest, JobsDifferByNameAndBySecret) {
  EXPECT_NE(JobHash("a", "b"), JobHash("a", "c"));
  EXPECT_NE(JobHash("a", "b"), JobHash("c", "b"));
  EXPECT_NE(JobHash("ab", ""), JobHash("a", "b"));
  EXPECT_EQ(JobHash("a", "b"), JobHash("a", "b"));
}

TEST(StreamCursorTest, YieldsFrameAndPiecesInOrderInBurstsOfBoundedSize) {
  std::vector<std::byte> large(kMaxBurstBytes + 10);
  std::vector<std::byte> small(3);
  OutStream stream;
  stream.Reset();
  stream.Add(AsBuffer(ConstBytes(large)));
  stream.Add(AsBuffer(ConstBytes()));
  stream.Add(AsBuffer(ConstBytes(small)));
  EXPECT_EQ(stream.payload(), large.size() + small.size());

  EXPECT_EQ(boost::asio::buffer_size(stream.NextBurst()), kMaxBurstBytes);
  stream.Advance(kFrameBytes - 1);
  EXPECT_FALSE(stream.frame_done());
  stream.Advance(1);
  EXPECT_TRUE(stream.frame_done());
  EXPECT_EQ(stream.payload_done(), 0U);
  stream.Advance(kMaxBurstBytes);
  EXPECT_EQ(stream.payload_done(), kMaxBurstBytes);
  EXPECT_EQ(boost::asio::buffer_size(stream.NextBurst()), 13U);
  EXPECT_EQ(stream.NextBurst().begin()->data(), large.data() + kMaxBurstBytes);
  stream.Advance(13);
  EXPECT_EQ(stream.remaining(), 0U);
}

}  // namespace
}  // namespace everstep
