// What members say to each other, as bytes: one format of 48 bytes for everything, little endian.
// It precedes the payload of each operation on a data connection, opens every connection (hello
// and its answer), and is all that a control connection carries (farewells).
#ifndef EVERSTEP_WORKER_COMM_FRAME_H_
#define EVERSTEP_WORKER_COMM_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/result.h"
#include "common/wire.h"

namespace everstep {

inline constexpr size_t kFrameBytes = 48;
using FrameBytes = std::array<std::byte, kFrameBytes>;

enum class FrameKind : uint16_t {
  // Opening a connection.
  kHelloData = 1,     // sequence: membership digest; argument: rank of the member that is meant
  kHelloControl = 2,  // the same, for the control connection
  kWelcome = 3,       // sequence: membership digest
  kRefused = 4,       // argument: Refusal; generation: the newest that the refuser is in
  // Operations; `length` bytes of payload follow; sequence counts the frames from this sender.
  kExchange = 16,
  kAllGather = 17,
  kBroadcast = 18,
  kBarrier = 19,
  kPointToPoint = 20,
  // Farewells.
  kAbort = 32,  // argument: the rank that was lost, or -1
  kLeave = 33,  // the sender is done with this generation, in order
};

enum class Refusal : int32_t {
  kOlderGeneration = 1,
  kOtherJob = 2,
  kOtherMembership = 3,  // the same generation with other members
  kNotExpected = 4,      // not meant for this process, or connected already
};

struct CommFrame {
  FrameKind kind = FrameKind::kExchange;
  uint64_t job = 0;  // JobHash
  uint64_t generation = 0;
  uint64_t sequence = 0;
  int32_t sender = -1;  // rank (process number)
  int32_t argument = 0;
  uint64_t length = 0;
};

FrameBytes EncodeCommFrame(const CommFrame& frame);
// kDataLoss when the bytes are no frame of this version.
Result<CommFrame> DecodeCommFrame(std::span<const std::byte, kFrameBytes> bytes);

std::string_view FrameKindName(FrameKind kind);
// Why, for the log: "of an older generation".
std::string_view RefusalText(Refusal refusal);

// Tells jobs apart, and strangers from members: a hash of the job's name and its secret.
uint64_t JobHash(std::string_view job, std::string_view token);

// Tells two memberships of the same generation apart.
uint64_t MembershipDigest(const wire::Membership& membership);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_COMM_FRAME_H_
