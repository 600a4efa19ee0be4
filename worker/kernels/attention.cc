#include "worker/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/kernels/gemm.h"
#include "worker/kernels/row_kernels.h"
#include "worker/kernels/tensor_rows.h"

namespace everstep {
namespace {

// Queries that are handled together: their scores with up to some thousand keys stay in the cache.
constexpr int64_t kQueryBlock = 64;

// A block of queries of one sequence and head, with the keys that any of them sees. Positions
// count from the sequence's first token.
struct Block {
  int64_t first_token;  // of the sequence
  int64_t query_begin, query_end;
  int64_t key_begin, key_end;
  int64_t window;

  int64_t queries() const { return query_end - query_begin; }
  int64_t keys() const { return key_end - key_begin; }
  int64_t query_token() const { return first_token + query_begin; }
  int64_t key_token() const { return first_token + key_begin; }
  // The keys that the block's query `row` sees, counted from key_begin.
  int64_t SeenBegin(int64_t row) const {
    if (window == 0) return 0;
    return std::max<int64_t>(0, query_begin + row - window + 1 - key_begin);
  }
  int64_t SeenEnd(int64_t row) const { return query_begin + row + 1 - key_begin; }
};

Block MakeBlock(const AttentionShape& shape, const Sequence& sequence, int64_t query_begin) {
  Block block;
  block.first_token = sequence.begin;
  block.query_begin = query_begin;
  block.query_end = std::min(query_begin + kQueryBlock, sequence.length);
  block.key_begin = shape.window == 0 ? 0 : std::max<int64_t>(0, query_begin - shape.window + 1);
  block.key_end = block.query_end;
  block.window = shape.window;
  return block;
}

// scores[queries, keys] = scale * q k', for one block and head.
void Scores(const AttentionShape& shape, const Block& block, const float* q, const float* k,
            int64_t head, float* scores) {
  const int64_t d = shape.head_dim;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const int64_t q_stride = shape.heads * d, kv_stride = shape.kv_heads * d;
  SgemmRaw({.m = block.queries(),
            .n = block.keys(),
            .k = d,
            .a = q + block.query_token() * q_stride + head * d,
            .lda = q_stride,
            .transpose_a = false,
            .b = k + block.key_token() * kv_stride + kv_head * d,
            .ldb = kv_stride,
            .transpose_b = true,
            .c = scores,
            .ldc = block.keys(),
            .alpha = 1.0f / std::sqrt(static_cast<float>(d)),
            .beta = 0});
}

// Turns the scores of a row into probabilities over the keys it sees, zero elsewhere.
void ZeroUnseen(const Block& block, int64_t row, float* values) {
  std::fill(values, values + block.SeenBegin(row), 0.0f);
  std::fill(values + block.SeenEnd(row), values + block.keys(), 0.0f);
}

void ForwardBlock(const AttentionShape& shape, const AttentionForwardArguments& a,
                  const Block& block, int64_t head, float* scores) {
  const int64_t d = shape.head_dim;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  Scores(shape, block, a.q, a.k, head, scores);
  float* log_sums = a.log_sums + head * shape.tokens + block.query_token();
  for (int64_t row = 0; row < block.queries(); ++row) {
    float* values = scores + row * block.keys();
    const int64_t begin = block.SeenBegin(row);
    const auto seen = static_cast<size_t>(block.SeenEnd(row) - begin);
    log_sums[row] = rows::Softmax(values + begin, seen);
    ZeroUnseen(block, row, values);
  }
  const int64_t q_stride = shape.heads * d, kv_stride = shape.kv_heads * d;
  SgemmRaw({.m = block.queries(),
            .n = d,
            .k = block.keys(),
            .a = scores,
            .lda = block.keys(),
            .transpose_a = false,
            .b = a.v + block.key_token() * kv_stride + kv_head * d,
            .ldb = kv_stride,
            .transpose_b = false,
            .c = a.out + block.query_token() * q_stride + head * d,
            .ldc = q_stride,
            .alpha = 1,
            .beta = 0});
}

// probabilities and d_scores are [queries, keys]; d_k and d_v of the block's keys are added to.
void BackwardBlock(const AttentionShape& shape, const AttentionBackwardArguments& a,
                   const Block& block, int64_t head, float* probabilities, float* d_scores) {
  const int64_t d = shape.head_dim, keys = block.keys();
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const int64_t q_stride = shape.heads * d, kv_stride = shape.kv_heads * d;
  const int64_t q_at = block.query_token() * q_stride + head * d;
  const int64_t kv_at = block.key_token() * kv_stride + kv_head * d;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  Scores(shape, block, a.q, a.k, head, probabilities);
  SgemmRaw({.m = block.queries(),
            .n = keys,
            .k = d,
            .a = a.d_out + q_at,
            .lda = q_stride,
            .transpose_a = false,
            .b = a.v + kv_at,
            .ldb = kv_stride,
            .transpose_b = true,
            .c = d_scores,
            .ldc = keys,
            .alpha = 1,
            .beta = 0});
  const float* log_sums = a.log_sums + head * shape.tokens + block.query_token();
  for (int64_t row = 0; row < block.queries(); ++row) {
    float* p = probabilities + row * keys;
    float* ds = d_scores + row * keys;
    const int64_t begin = block.SeenBegin(row);
    const auto seen = static_cast<size_t>(block.SeenEnd(row) - begin);
    const float* out = a.out + q_at + row * q_stride;
    const float* d_out = a.d_out + q_at + row * q_stride;
    const float mean = rows::Dot(out, d_out, static_cast<size_t>(d));
    rows::SoftmaxBackward(p + begin, ds + begin, log_sums[row], mean, scale, seen);
    ZeroUnseen(block, row, p);
    ZeroUnseen(block, row, ds);
  }
  SgemmRaw({.m = keys,
            .n = d,
            .k = block.queries(),
            .a = probabilities,
            .lda = keys,
            .transpose_a = true,
            .b = a.d_out + q_at,
            .ldb = q_stride,
            .transpose_b = false,
            .c = a.d_v + kv_at,
            .ldc = kv_stride,
            .alpha = 1,
            .beta = 1});
  SgemmRaw({.m = block.queries(),
            .n = d,
            .k = keys,
            .a = d_scores,
            .lda = keys,
            .transpose_a = false,
            .b = a.k + kv_at,
            .ldb = kv_stride,
            .transpose_b = false,
            .c = a.d_q + q_at,
            .ldc = q_stride,
            .alpha = 1,
            .beta = 0});
  SgemmRaw({.m = keys,
            .n = d,
            .k = block.queries(),
            .a = d_scores,
            .lda = keys,
            .transpose_a = true,
            .b = a.q + q_at,
            .ldb = q_stride,
            .transpose_b = false,
            .c = a.d_k + kv_at,
            .ldc = kv_stride,
            .alpha = 1,
            .beta = 1});
}

// Runs body(task) for every task. Which thread takes which does not matter to the results: no two
// tasks write to the same place.
template <typename Body>
void ForTasks(int64_t tasks, const Body& body) {
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t task = 0; task < tasks; ++task) body(task);
}

}  // namespace

void AttentionForward(const AttentionShape& shape, const AttentionForwardArguments& arguments) {
  // Longest first, so that no thread is left with a long one at the end.
  std::vector<Block> blocks;
  for (const Sequence& sequence : shape.sequences) {
    for (int64_t begin = 0; begin < sequence.length; begin += kQueryBlock) {
      blocks.push_back(MakeBlock(shape, sequence, begin));
    }
  }
  std::ranges::stable_sort(blocks, std::greater(), &Block::keys);
  ForTasks(static_cast<int64_t>(blocks.size()) * shape.heads, [&](int64_t task) {
    const Block& block = blocks[static_cast<size_t>(task / shape.heads)];
    float* scores = ScratchRow(0, kQueryBlock * block.keys());
    ForwardBlock(shape, arguments, block, task % shape.heads, scores);
  });
}

void AttentionBackward(const AttentionShape& shape, const AttentionBackwardArguments& arguments) {
  const int64_t d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int64_t kv_stride = shape.kv_heads * d;
  std::vector<Sequence> sequences(shape.sequences.begin(), shape.sequences.end());
  std::ranges::stable_sort(sequences, std::greater(), &Sequence::length);
  // One task per sequence and key head: it alone adds to those keys' gradients, in block order.
  ForTasks(static_cast<int64_t>(sequences.size()) * shape.kv_heads, [&](int64_t task) {
    const Sequence& sequence = sequences[static_cast<size_t>(task / shape.kv_heads)];
    const int64_t kv_head = task % shape.kv_heads;
    for (int64_t token = sequence.begin; token < sequence.begin + sequence.length; ++token) {
      std::fill_n(arguments.d_k + token * kv_stride + kv_head * d, d, 0.0f);
      std::fill_n(arguments.d_v + token * kv_stride + kv_head * d, d, 0.0f);
    }
    for (int64_t begin = 0; begin < sequence.length; begin += kQueryBlock) {
      const Block block = MakeBlock(shape, sequence, begin);
      float* probabilities = ScratchRow(0, kQueryBlock * block.keys());
      float* d_scores = ScratchRow(1, kQueryBlock * block.keys());
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        BackwardBlock(shape, arguments, block, head, probabilities, d_scores);
      }
    }
  });
}

}  // namespace everstep
