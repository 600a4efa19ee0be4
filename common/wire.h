// The messages between worker, supervisor and rendezvous: one vocabulary, one version, no I/O.
//
// A frame on the wire is a 4-byte big-endian length and one JSON object {"v":1,"type":...}.
// Every message about training carries the generation it belongs to; a receiver drops what is of
// an older one (the fence).
//
//   worker --(socketpair)--> supervisor --(TCP)--> rendezvous
//   worker <-- Membership, Stop --- supervisor <-- Membership, StartProcess, Stop --- rendezvous
#ifndef EVERSTEP_COMMON_WIRE_H_
#define EVERSTEP_COMMON_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace everstep::wire {

inline constexpr int kVersion = 1;
inline constexpr size_t kMaxFrameBytes = 4 << 20;
inline constexpr size_t kLastWordsBytes = 4096;

// ---- Membership ------------------------------------------------------------------------------

struct Member {
  int rank = -1;                   // process number at full strength: replica * processes + local
  std::string endpoint;            // "ip:port" of its communicator
  std::vector<int> logical_ranks;  // the shares of the global batch that it hosts, ascending
  bool newcomer = false;           // joins in this generation and holds no state yet
};

// One generation. Members are ordered by rank; the first one that is no newcomer is the lead,
// which writes logs and checkpoints.
struct Membership {
  uint64_t generation = 0;
  // A planned change takes effect at a step boundary that the members agree on. One that is not
  // planned follows a death: whoever hears of it aborts its exchange and regroups at once.
  bool planned = false;
  int64_t durable_step = -1;  // no member set may start below it without loading a checkpoint
  std::vector<Member> members;
};

// ---- From a worker, passed on by its supervisor with the rank filled in -----------------------

// The process has loaded its model and listens; it wants to be a member.
struct Ready {
  int rank = -1;
  std::string endpoint;
  // The generation that the process is in. 0 from a worker; a supervisor that reconnects sends the
  // Ready of its live processes again and fills it in (0: never told of one, holds no state).
  uint64_t generation = 0;
};
// The communicator of `generation` is connected and the members agree on the state of `step`.
struct Regrouped {
  int rank = -1;
  uint64_t generation = 0;
  int64_t step = 0;
};
// An exchange failed because `lost_rank` (-1: unknown) is gone.
struct PeerLost {
  int rank = -1;
  uint64_t generation = 0;
  int lost_rank = -1;
};
// Completed optimizer step, sent by the lead after each one.
struct Progress {
  int rank = -1;
  uint64_t generation = 0;
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  double epoch = 0;
  double tokens_per_second = 0;
  double step_seconds = 0;
};
// A complete checkpoint is on the volume (sent by the lead).
struct CheckpointSaved {
  int rank = -1;
  uint64_t generation = 0;
  int64_t step = 0;
  std::string path;
  double seconds = 0;
  std::string warning;  // not empty: saving failed and training goes on (full disk); path is empty
};
// Training is complete and its results are durable; the process exits with 0 next.
struct Finished {
  int rank = -1;
  int64_t step = 0;
  std::string output_dir;
};
// The process gives up for a reason that a restart does not cure (bad input, NaN loss).
struct Fatal {
  int rank = -1;
  std::string reason;
};

// ---- From a supervisor ------------------------------------------------------------------------

struct Hello {
  std::string job;
  std::string token;  // shared secret of the pod
  int replica = 0;
  int incarnation = 0;
  int processes = 1;  // of this replica; their ranks are replica * processes + 0 .. processes-1
  std::string pod;
  std::string node;
};
struct ProcessStarted {
  int rank = -1;
  int64_t pid = 0;
};
enum class DeathCause { kExited, kSignaled, kHung, kStartFailed };
// "exited", "signaled", "hung", "start-failed".
std::string_view DeathCauseName(DeathCause cause);
struct ProcessDied {
  int rank = -1;
  uint64_t generation = 0;  // the last one the process knew
  DeathCause cause = DeathCause::kExited;
  int exit_code = 0;          // kExited
  int signal = 0;             // kSignaled
  double detect_seconds = 0;  // from its last heartbeat to this report
};
// Follows ProcessDied when the process has been reaped (which can take long for a large one).
struct LastWords {
  int rank = -1;
  std::string text;  // the end of its standard error, at most kLastWordsBytes
  int exit_code = 0;
  int signal = 0;
};
struct RankBeat {
  int rank = -1;
  uint64_t generation = 0;
  int64_t step = 0;
  std::string phase;
};
struct Heartbeat {
  std::vector<RankBeat> ranks;
};

// ---- To a supervisor --------------------------------------------------------------------------

struct Welcome {
  double heartbeat_timeout_seconds = 1;
};
// Start (again) the process of `rank` in place.
struct StartProcess {
  int rank = -1;
};
// Stop all processes: SIGTERM, then SIGKILL after grace_seconds. A worker that gets Stop saves a
// checkpoint at the next step boundary and exits.
struct Stop {
  double grace_seconds = 30;
  std::string reason;
};
// This connection is of an older incarnation or generation: exit.
struct Fenced {
  std::string reason;
};

using Message = std::variant<Membership, Ready, Regrouped, PeerLost, Progress, CheckpointSaved,
                             Finished, Fatal, Hello, ProcessStarted, ProcessDied, LastWords,
                             Heartbeat, Welcome, StartProcess, Stop, Fenced>;

// Not-a-number and infinite values travel as null and come back as not-a-number.
Json ToJson(const Message& message);
// Absent fields keep their defaults and unknown ones are ignored, so that neighbouring releases
// understand each other. InvalidArgument names the message and the field: "Ready.rank: must be a
// number from ..., is \"x\"".
Result<Message> FromJson(const Json& json);
// "Membership", "Ready", ...: the value of "type" on the wire.
std::string_view TypeName(const Message& message);

// The frame (length and body) of `message`. Texts must be bounded by the caller: a frame over
// kMaxFrameBytes is a bug of the sender.
std::string EncodeFrame(const Message& message);

// Collects bytes as they arrive and yields whole messages.
class FrameDecoder {
 public:
  void Append(std::string_view bytes);
  // The next message; NotFound when more bytes are needed, DataLoss when the stream is broken
  // (oversized frame, not a message): close it then, every further call says the same.
  Result<Message> Next();

 private:
  std::string buffer_;
  size_t consumed_ = 0;  // bytes of buffer_ that Next() has returned
  bool broken_ = false;
};

}  // namespace everstep::wire

#endif  // EVERSTEP_COMMON_WIRE_H_
