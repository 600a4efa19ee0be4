// The sum of all logical ranks' gradients, in an order that depends on the logical ranks alone:
//
//   reduced[i] = ((g_0[i] + g_1[i]) + g_2[i] + ... + g_{L-1}[i]) * scale
//
// in fp32, whoever hosts what. The bits are therefore the same for any membership, which is what
// makes a run with deaths end with the weights of an undisturbed one.
//
// On the wire: an all-to-all of pieces to the shards' owners, an ordered sum there, an all-gather;
// both run as one pipeline of rounds, so that the room for received pieces is bounded and stays
// in the processor's cache. With one logical rank per member these are the bytes of a ring
// all-reduce. A member that hosts two logical ranks sends two pieces.
#ifndef EVERSTEP_WORKER_PARALLEL_ORDERED_REDUCE_H_
#define EVERSTEP_WORKER_PARALLEL_ORDERED_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/result.h"
#include "common/wire.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/shards.h"

namespace everstep {

// The gradient of one hosted logical rank, [size] elements.
struct LogicalGradient {
  int logical_rank = -1;
  std::span<const float> values;
};

struct ReduceInput {
  // One per logical rank that this member hosts, ascending. Never changed: when the reduction
  // fails, it is retried with them over the next membership.
  std::span<const LogicalGradient> local;
  float scale = 1;  // 1 / number of label tokens of the global batch
  // A few bytes for all members, of the same length on all; they ride in the last message.
  ConstBytes vote;
};

struct ReduceOutput {
  // [size]; no overlap with the input, except that a member that is alone may give the vector of
  // its first logical rank: nothing can fail once it is written to.
  std::span<float> reduced;
  std::span<double> chunk_norms;  // [NormChunks(size)]: sum of squares of each chunk of `reduced`
  std::span<std::byte> votes;     // [members * vote length], in the order of the members
};

struct OrderedReduceOptions {
  // Elements of each shard per round; a multiple of kNormChunk. Room for received pieces is
  // round_elements * logical ranks hosted elsewhere * 4 bytes.
  int64_t round_elements = 4 * kNormChunk;
};

// Keeps its room for received pieces from one call to the next. One caller at a time.
class OrderedReducer {
 public:
  explicit OrderedReducer(OrderedReduceOptions options = {}) : options_(options) {}

  // All members call it with vectors of one size. `membership` is the communicator's: its members
  // host every logical rank 0 .. L-1 exactly once. Errors are the communicator's; kInternal
  // when `membership` or the local gradients do not fit. A single member does not communicate.
  Status Reduce(Communicator& communicator, const wire::Membership& membership,
                const ReduceInput& input, const ReduceOutput& output);

 private:
  const OrderedReduceOptions options_;
  std::vector<float> received_;
};

// The norm over all chunks: square root of their sums of squares, added in chunk order.
double GlobalNorm(std::span<const double> chunk_norms);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_PARALLEL_ORDERED_REDUCE_H_
