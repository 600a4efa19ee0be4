// How the members of one generation exchange bytes. Two implementations: TCP (tcp_fabric.h) for
// tensors in main memory, control and state transfer; NCCL in a shared library of its own.
//
// A communicator lives for one generation and is never repaired: after the first error every
// later call fails at once with that error, and the owner builds the next generation's.
//
// Errors of every operation:
//   kAborted      Abort() was called here, or a peer aborted (the message says which and why);
//                 the message names the generation.
//   kUnavailable  a peer's connection ended without a farewell: its process or its network is
//                 gone. lost_rank() names it.
//   kInternal     the members disagree on what they are doing (other operation, other size).
//
// Threading: one caller at a time, except Abort(), which any thread may call at any moment.
// Memory: spans belong to the caller, are read and written in place (no copies), and must stay
// alive until the call returns. What was received is unspecified after an error; what was sent
// is never changed.
#ifndef EVERSTEP_WORKER_COMM_COMMUNICATOR_H_
#define EVERSTEP_WORKER_COMM_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>

#include "common/result.h"

namespace everstep {

using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// Bytes for the member at position `to`. Several pieces for one member arrive in their order.
struct SendPiece {
  int to = -1;
  ConstBytes bytes;
};
// Room for bytes from the member at position `from`; filled in order.
struct ReceivePiece {
  int from = -1;
  MutableBytes bytes;
};

// Told on the caller's thread during an exchange that the first `bytes` bytes of all that the
// member at `from` sends in it are in place. Never called with fewer bytes than before; its last
// call for a member that sends anything has the whole. Must be short (it delays Abort).
using ReceiveProgress = std::function<void(int from, size_t bytes)>;

class Communicator {
 public:
  virtual ~Communicator() = default;

  // Position within the membership, 0 .. size()-1 (not the process number).
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual uint64_t generation() const = 0;

  // All-to-all: the total that a sends to b must be the total that b expects from a; how the two
  // cut it into pieces need not agree. All members call it together, also with nothing to send.
  // Pieces to oneself are copied. Exchanges with everybody at once.
  virtual Status Exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives,
                          const ReceiveProgress& progress) = 0;
  Status Exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives) {
    return Exchange(sends, receives, nullptr);
  }

  // parts[i] (size() of them, lengths known to all) receives member i's bytes. `mine` may be
  // parts[rank()] itself; else it is copied there.
  virtual Status AllGather(ConstBytes mine, std::span<const MutableBytes> parts) = 0;

  // Fills `bytes` (same length on all) with those of the member at position `root`.
  virtual Status Broadcast(int root, MutableBytes bytes) = 0;

  // Returns when all members have called it.
  virtual Status Barrier() = 0;

  // Between two members, beside what the others do. The lengths must agree. Send returns when
  // the bytes have left this process, not when they have arrived; a long one waits for Receive.
  virtual Status Send(int to, ConstBytes bytes) = 0;
  virtual Status Receive(int from, MutableBytes bytes) = 0;

  // Cancels the operation in progress, which returns kAborted within a millisecond, and all later
  // ones; the peers' operations end with kAborted too, even while our caller computes. Idempotent.
  virtual void Abort() = 0;

  // The process number (wire::Member::rank) whose connection ended, seen here or told by a peer
  // that aborted for it; -1 when none did. Any thread.
  virtual int lost_rank() const = 0;
};

// The bytes of a contiguous range of plain values.
template <typename T>
ConstBytes AsConstBytes(std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(values);
}
template <typename T>
MutableBytes AsMutableBytes(std::span<T> values) {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>);
  return std::as_writable_bytes(values);
}

}  // namespace everstep

#endif  // EVERSTEP_WORKER_COMM_COMMUNICATOR_H_
