#include "worker/comm/frame.h"

#include <xxhash.h>

#include <bit>
#include <cstring>
#include <string>

namespace everstep {
namespace {

constexpr uint32_t kMagic = 0x50545345;  // "ESTP"
constexpr uint16_t kFrameVersion = 1;
static_assert(std::endian::native == std::endian::little, "frames are copied in host order");

template <typename T>
void Put(FrameBytes& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

template <typename T>
T Get(std::span<const std::byte, kFrameBytes> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

FrameBytes EncodeCommFrame(const CommFrame& frame) {
  FrameBytes bytes{};
  Put(bytes, 0, kMagic);
  Put(bytes, 4, static_cast<uint16_t>(frame.kind));
  Put(bytes, 6, kFrameVersion);
  Put(bytes, 8, frame.job);
  Put(bytes, 16, frame.generation);
  Put(bytes, 24, frame.sequence);
  Put(bytes, 32, frame.sender);
  Put(bytes, 36, frame.argument);
  Put(bytes, 40, frame.length);
  return bytes;
}

Result<CommFrame> DecodeCommFrame(std::span<const std::byte, kFrameBytes> bytes) {
  if (Get<uint32_t>(bytes, 0) != kMagic) return DataLoss("not an Everstep frame");
  const auto version = Get<uint16_t>(bytes, 6);
  if (version != kFrameVersion) {
    return DataLoss("frame of version " + std::to_string(version) + ", this program speaks " +
                    std::to_string(kFrameVersion));
  }
  return CommFrame{.kind = static_cast<FrameKind>(Get<uint16_t>(bytes, 4)),
                   .job = Get<uint64_t>(bytes, 8),
                   .generation = Get<uint64_t>(bytes, 16),
                   .sequence = Get<uint64_t>(bytes, 24),
                   .sender = Get<int32_t>(bytes, 32),
                   .argument = Get<int32_t>(bytes, 36),
                   .length = Get<uint64_t>(bytes, 40)};
}

std::string_view FrameKindName(FrameKind kind) {
  switch (kind) {
    case FrameKind::kHelloData:
      return "hello";
    case FrameKind::kHelloControl:
      return "hello (control)";
    case FrameKind::kWelcome:
      return "welcome";
    case FrameKind::kRefused:
      return "refused";
    case FrameKind::kExchange:
      return "exchange";
    case FrameKind::kAllGather:
      return "all-gather";
    case FrameKind::kBroadcast:
      return "broadcast";
    case FrameKind::kBarrier:
      return "barrier";
    case FrameKind::kPointToPoint:
      return "send/receive";
    case FrameKind::kAbort:
      return "abort";
    case FrameKind::kLeave:
      return "leave";
  }
  return "unknown";
}

std::string_view RefusalText(Refusal refusal) {
  switch (refusal) {
    case Refusal::kOlderGeneration:
      return "of an older generation";
    case Refusal::kOtherJob:
      return "of another job";
    case Refusal::kOtherMembership:
      return "has other members in this generation";
    case Refusal::kNotExpected:
      return "not expected";
  }
  return "unknown";
}

uint64_t JobHash(std::string_view job, std::string_view token) {
  std::string text(job);
  text += '\0';
  text += token;
  return XXH3_64bits(text.data(), text.size());
}

uint64_t MembershipDigest(const wire::Membership& membership) {
  std::string text = std::to_string(membership.generation);
  for (const wire::Member& member : membership.members) {
    text += ';' + std::to_string(member.rank) + '@' + member.endpoint;
    for (const int logical_rank : member.logical_ranks) text += ',' + std::to_string(logical_rank);
    if (member.newcomer) text += '+';
  }
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace everstep
