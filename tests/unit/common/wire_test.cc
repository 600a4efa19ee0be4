#include "common/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace everstep::wire {
namespace {

using testing::HasSubstr;

// One of every type, with no field at its default.
std::vector<Message> OneOfEach() {
  const Member member{
      .rank = 3, .endpoint = "127.0.0.1:7", .logical_ranks = {1, 3}, .newcomer = true};
  return {
      Membership{.generation = 9, .planned = true, .durable_step = 40, .members = {member, {}}},
      Ready{.rank = 2, .endpoint = "127.0.1.1:1234", .generation = 6},
      Regrouped{.rank = 1, .generation = 4, .step = 17},
      PeerLost{.rank = 1, .generation = 4, .lost_rank = 2},
      Progress{.rank = 1,
               .generation = 4,
               .step = 18,
               .total_steps = 100,
               .loss = 1.25,
               .grad_norm = 0.5,
               .learning_rate = 1e-5,
               .epoch = 0.18,
               .tokens_per_second = 1e4,
               .step_seconds = 0.7},
      CheckpointSaved{.rank = 1,
                      .generation = 4,
                      .step = 18,
                      .path = "out/checkpoint-18",
                      .seconds = 0.2,
                      .warning = "disk"},
      Finished{.rank = 1, .step = 100, .output_dir = "out"},
      Fatal{.rank = 1, .reason = "loss is \"NaN\"\n\xc3\xa9"},
      Hello{.job = "j",
            .token = "t",
            .replica = 1,
            .incarnation = 2,
            .processes = 3,
            .pod = "j-1-2",
            .node = "n"},
      ProcessStarted{.rank = 1, .pid = 4711},
      ProcessDied{.rank = 1,
                  .generation = 4,
                  .cause = DeathCause::kSignaled,
                  .exit_code = 1,
                  .signal = 9,
                  .detect_seconds = 0.03},
      LastWords{.rank = 1, .text = "oops", .exit_code = 1, .signal = 9},
      Heartbeat{.ranks = {{.rank = 1, .generation = 4, .step = 18, .phase = "compute"}}},
      Welcome{.heartbeat_timeout_seconds = 2},
      StartProcess{.rank = 1},
      Stop{.grace_seconds = 12, .reason = "suspended"},
      Fenced{.reason = "older"},
  };
}

TEST(WireTest, EveryMessageComesBackAsItWasSent) {
  const auto messages = OneOfEach();
  std::set<std::string_view> types;
  for (const Message& message : messages) {
    const Json json = ToJson(message);
    const auto back = FromJson(json);
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(ToJson(*back), json) << TypeName(message);
    types.insert(TypeName(message));
  }
  EXPECT_EQ(types.size(), std::variant_size_v<Message>);
}

TEST(WireTest, NoFieldIsLeftOut) {
  // A field that is not listed for the wire would come back as its default.
  const auto back = FromJson(ToJson(OneOfEach()[0]));
  const auto& membership = std::get<Membership>(*back);
  EXPECT_EQ(membership.members.at(0).logical_ranks, (std::vector<int>{1, 3}));
  EXPECT_TRUE(membership.members.at(0).newcomer);
  for (const Message& message : OneOfEach()) {
    const Json json = ToJson(message);
    std::visit(
        [&](const auto& typed) {
          const Json defaults = ToJson(Message(std::remove_cvref_t<decltype(typed)>{}));
          for (const auto& [key, value] : json.items()) {
            if (key == "v" || key == "type") continue;
            EXPECT_NE(value, defaults[key]) << TypeName(message) << "." << key;
          }
        },
        message);
  }
}

TEST(WireTest, NotANumberSurvives) {
  const auto back = FromJson(*ParseJson(DumpJson(ToJson(Progress{.loss = std::nan("")})), "test"));
  ASSERT_TRUE(back.has_value());
  EXPECT_TRUE(std::isnan(std::get<Progress>(*back).loss));
}

TEST(WireTest, InvalidUtf8IsReplacedNotThrownOn) {
  FrameDecoder decoder;
  decoder.Append(EncodeFrame(LastWords{.text = "\xff\xfe words"}));
  const auto back = decoder.Next();
  ASSERT_TRUE(back.has_value());
  EXPECT_THAT(std::get<LastWords>(*back).text, HasSubstr("words"));
}

struct BadMessage {
  const char* json;
  const char* error;
};
class WireBadMessageTest : public testing::TestWithParam<BadMessage> {};

TEST_P(WireBadMessageTest, IsRefusedWithItsReason) {
  const auto message = FromJson(*ParseJson(GetParam().json, "test"));
  ASSERT_FALSE(message.has_value());
  EXPECT_EQ(message.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(message.error().message, HasSubstr(GetParam().error));
}

INSTANTIATE_TEST_SUITE_P(
    All, WireBadMessageTest,
    testing::Values(
        BadMessage{R"([])", "must be an object"},
        BadMessage{R"({"type":"Ready"})", "message of version 0: this program speaks version 1"},
        BadMessage{R"({"v":2,"type":"Ready"})", "message of version 2"},
        BadMessage{R"({"v":1})", "unknown type ''"},
        BadMessage{R"({"v":1,"type":"Boo"})", "unknown type 'Boo'"},
        BadMessage{R"({"v":1,"type":"Ready","rank":"x"})", "Ready.rank: must be a whole number"},
        BadMessage{R"({"v":1,"type":"Ready","rank":1.5})", "Ready.rank: must be a whole number"},
        BadMessage{R"({"v":1,"type":"Ready","rank":4294967296})", "Ready.rank: must be"},
        BadMessage{R"({"v":1,"type":"Ready","generation":-1})", "Ready.generation: must be"},
        BadMessage{R"({"v":1,"type":"Ready","endpoint":7})", "Ready.endpoint: must be a text"},
        BadMessage{R"({"v":1,"type":"Membership","planned":1})", "must be true or false"},
        BadMessage{R"({"v":1,"type":"Membership","members":{}})", "must be a list"},
        BadMessage{R"({"v":1,"type":"Membership","members":[7]})", "members[0]: must be an object"},
        BadMessage{R"({"v":1,"type":"Membership","members":[{"logical_ranks":["a"]}]})",
                   "Membership.members[0].logical_ranks[0]: must be a whole number"},
        BadMessage{R"({"v":1,"type":"ProcessDied","cause":"bored"})", "must be exited, signaled"},
        BadMessage{R"({"v":1,"type":"Progress","loss":"low"})",
                   "Progress.loss: must be a number"}));

TEST(WireTest, UnknownFieldsAreIgnoredAndAbsentOnesKeepTheirDefaults) {
  const auto message = FromJson(*ParseJson(R"({"v":1,"type":"Ready","rank":3,"new":[1]})", "test"));
  ASSERT_TRUE(message.has_value()) << message.error().message;
  EXPECT_EQ(std::get<Ready>(*message).rank, 3);
  EXPECT_EQ(std::get<Ready>(*message).generation, 0u);
}

TEST(FrameDecoderTest, YieldsTheSameMessagesWhereverTheStreamIsCut) {
  std::string stream;
  for (const Message& message : OneOfEach()) stream += EncodeFrame(message);
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    FrameDecoder decoder;
    size_t count = 0;
    for (const std::string& part : {stream.substr(0, cut), stream.substr(cut)}) {
      decoder.Append(part);
      while (decoder.Next().has_value()) ++count;
    }
    ASSERT_EQ(count, OneOfEach().size()) << "cut at " << cut;
    ASSERT_EQ(decoder.Next().error().code, ErrorCode::kNotFound);
  }
}

TEST(FrameDecoderTest, WorksByteByByte) {
  FrameDecoder decoder;
  size_t count = 0;
  for (const Message& message : OneOfEach()) {
    for (char byte : EncodeFrame(message)) {
      decoder.Append({&byte, 1});
      if (decoder.Next().has_value()) ++count;
    }
  }
  EXPECT_EQ(count, OneOfEach().size());
}

TEST(FrameDecoderTest, AnOversizedFrameBreaksTheStreamBeforeItIsCollected) {
  FrameDecoder decoder;
  decoder.Append({"\x00\x40\x00\x01", 4});  // one more than allowed
  EXPECT_EQ(decoder.Next().error().code, ErrorCode::kDataLoss);
  decoder.Append(EncodeFrame(Ready{}));
  EXPECT_EQ(decoder.Next().error().code, ErrorCode::kDataLoss);
}

TEST(FrameDecoderTest, ALargestFrameIsTaken) {
  const size_t overhead = EncodeFrame(Fatal{.rank = 1, .reason = ""}).size() - 4;
  FrameDecoder decoder;
  decoder.Append(
      EncodeFrame(Fatal{.rank = 1, .reason = std::string(kMaxFrameBytes - overhead, 'x')}));
  const auto message = decoder.Next();
  ASSERT_TRUE(message.has_value()) << message.error().message;
}

TEST(FrameDecoderTest, GarbageNeverYieldsAMessageNorCrashes) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    // Half of the rounds: a valid frame with one byte changed; else noise with a small length.
    std::string bytes = EncodeFrame(OneOfEach()[random() % 17]);
    if (round % 2 == 0) {
      for (size_t i = 2; i < bytes.size(); ++i) bytes[i] = static_cast<char>(random());
    } else {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    FrameDecoder decoder;
    decoder.Append(bytes);
    const auto message = decoder.Next();
    if (round % 2 == 0) {
      EXPECT_FALSE(message.has_value());
    } else if (!message) {
      EXPECT_THAT(message.error().code, testing::AnyOf(ErrorCode::kDataLoss, ErrorCode::kNotFound));
    }
  }
}

TEST(FrameDecoderTest, DeepNestingIsRefused) {
  std::string body(100000, '[');
  std::string frame{'\0', static_cast<char>(body.size() >> 16), static_cast<char>(body.size() >> 8),
                    static_cast<char>(body.size())};
  FrameDecoder decoder;
  decoder.Append(frame + body);
  EXPECT_EQ(decoder.Next().error().code, ErrorCode::kDataLoss);
}

}  // namespace
}  // namespace everstep::wire
