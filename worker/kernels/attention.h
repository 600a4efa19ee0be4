// Causal attention over sequences that lie one after the other in a batch of tokens, without
// padding: each token sees the tokens of its own sequence up to itself. Nothing of size
// [length, length] is kept; the backward pass computes the probabilities again from the logarithms
// of their sums (Dao et al., FlashAttention, algorithm 4).
#ifndef EVERSTEP_WORKER_KERNELS_ATTENTION_H_
#define EVERSTEP_WORKER_KERNELS_ATTENTION_H_

#include <cstdint>
#include <span>

namespace everstep {

struct Sequence {
  int64_t begin = 0;  // first token
  int64_t length = 0;
};

struct AttentionShape {
  std::span<const Sequence> sequences;
  int64_t tokens = 0;    // row count of all matrices
  int64_t heads = 0;     // of queries; a multiple of kv_heads
  int64_t kv_heads = 0;  // query head h uses key and value head h / (heads / kv_heads)
  int64_t head_dim = 0;
  int64_t window = 0;  // a token sees itself and the window - 1 tokens before it; 0 = all
};

// All matrices are fp32 and row-major: q and out [tokens, heads * head_dim], k and v
// [tokens, kv_heads * head_dim]; log_sums is [heads, tokens].
struct AttentionForwardArguments {
  const float* q;
  const float* k;
  const float* v;
  float* out;
  float* log_sums;
};
void AttentionForward(const AttentionShape& shape, const AttentionForwardArguments& arguments);

// From the gradient of `out`: those of q, k and v, which are overwritten.
struct AttentionBackwardArguments {
  const float* q;
  const float* k;
  const float* v;
  const float* out;
  const float* log_sums;
  const float* d_out;
  float* d_q;
  float* d_k;
  float* d_v;
};
void AttentionBackward(const AttentionShape& shape, const AttentionBackwardArguments& arguments);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_KERNELS_ATTENTION_H_
