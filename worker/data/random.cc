#include "worker/data/random.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "common/check.h"

namespace everstep {
namespace {

// numpy's SeedSequence with a pool of four words (M. E. O'Neill, "Developing a seed_seq
// Alternative", 2015): returns `count` words for a generator's state.
std::vector<uint32_t> SeedSequenceState(uint64_t seed, size_t count) {
  constexpr uint32_t kInitA = 0x43b0d7e5;
  constexpr uint32_t kMultA = 0x931e8875;
  constexpr uint32_t kInitB = 0x8b51f9dd;
  constexpr uint32_t kMultB = 0x58f38ded;
  constexpr uint32_t kMixLeft = 0xca01f9dd;
  constexpr uint32_t kMixRight = 0x4973f715;
  constexpr int kShift = 16;

  std::array<uint32_t, 4> pool = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0,
                                  0};
  uint32_t constant = kInitA;
  const auto hash = [&](uint32_t value) {
    value ^= constant;
    constant *= kMultA;
    value *= constant;
    return value ^ (value >> kShift);
  };
  for (uint32_t& word : pool) word = hash(word);
  for (size_t source = 0; source < pool.size(); ++source) {
    for (size_t target = 0; target < pool.size(); ++target) {
      if (source == target) continue;
      const uint32_t mixed = kMixLeft * pool[target] - kMixRight * hash(pool[source]);
      pool[target] = mixed ^ (mixed >> kShift);
    }
  }
  std::vector<uint32_t> state(count);
  constant = kInitB;
  for (size_t i = 0; i < count; ++i) {
    uint32_t value = pool[i % pool.size()] ^ constant;
    constant *= kMultB;
    value *= constant;
    state[i] = value ^ (value >> kShift);
  }
  return state;
}

// Uniform in [0, max] by masked rejection of 32-bit draws, numpy's random_interval.
template <typename Draw>
uint32_t Interval(uint32_t max, Draw draw) {
  uint32_t mask = max;
  for (int shift = 1; shift < 32; shift *= 2) mask |= mask >> shift;
  if (max == 0) return 0;
  // Each draw is accepted with probability above one half.
  while (true) {
    const uint32_t value = draw() & mask;
    if (value <= max) return value;
  }
}

template <typename Draw>
std::vector<size_t> Shuffled(size_t n, Draw draw) {
  EVERSTEP_CHECK(n <= std::numeric_limits<uint32_t>::max());
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = n; i-- > 1;) {
    std::swap(order[i], order[Interval(static_cast<uint32_t>(i), draw)]);
  }
  return order;
}

}  // namespace

Mt19937::Mt19937(uint32_t seed) {
  state_[0] = seed;
  for (uint32_t i = 1; i < kWords; ++i) {
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
}

void Mt19937::Refill() {
  constexpr int kOffset = 397;
  for (int i = 0; i < kWords; ++i) {
    const uint32_t joined = (state_[i] & 0x80000000u) | (state_[(i + 1) % kWords] & 0x7fffffffu);
    state_[i] = state_[(i + kOffset) % kWords] ^ (joined >> 1) ^ ((joined & 1) ? 0x9908b0dfu : 0);
  }
  next_ = 0;
}

uint32_t Mt19937::Next() {
  if (next_ == kWords) Refill();
  uint32_t y = state_[next_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

std::vector<uint32_t> TorchPermutation(uint32_t n, uint64_t seed) {
  EVERSTEP_CHECK(n < std::numeric_limits<uint32_t>::max() / 20);
  Mt19937 generator(static_cast<uint32_t>(seed));
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t i = 0; i + 1 < n; ++i) {
    std::swap(order[i], order[i + generator.Next() % (n - i)]);
  }
  return order;
}

std::vector<size_t> NumpyLegacyRandom::Permutation(size_t n) {
  return Shuffled(n, [this] { return generator_.Next(); });
}

std::vector<size_t> NumpyLegacyRandom::Choice(size_t n, size_t count) {
  EVERSTEP_CHECK(n > 0 && n <= std::numeric_limits<uint32_t>::max());
  std::vector<size_t> chosen(count);
  const auto last = static_cast<uint32_t>(n - 1);
  for (size_t& index : chosen) index = Interval(last, [this] { return generator_.Next(); });
  return chosen;
}

NumpyGenerator::NumpyGenerator(uint64_t seed) {
  const std::vector<uint32_t> words = SeedSequenceState(seed, 8);
  const auto word64 = [&](size_t i) {
    return Uint128{words[2 * i]} | (Uint128{words[2 * i + 1]} << 32);
  };
  const Uint128 start = (word64(0) << 64) | word64(1);
  increment_ = (((word64(2) << 64) | word64(3)) << 1) | 1;
  Step();
  state_ += start;
  Step();
}

void NumpyGenerator::Step() {
  constexpr Uint128 kMultiplier =
      (Uint128{2549297995355413924ULL} << 64) | Uint128{4865540595714422341ULL};
  state_ = state_ * kMultiplier + increment_;
}

uint64_t NumpyGenerator::Next64() {
  Step();
  const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  const int rotation = static_cast<int>(state_ >> 122);
  return (folded >> rotation) | (folded << (-rotation & 63));
}

uint32_t NumpyGenerator::Next32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const uint64_t both = Next64();
  has_half_ = true;
  half_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

std::vector<size_t> NumpyGenerator::Permutation(size_t n) {
  return Shuffled(n, [this] { return Next32(); });
}

std::vector<size_t> NumpyGenerator::Choice(std::span<const double> probabilities, size_t count) {
  std::vector<double> cumulative(probabilities.size());
  std::partial_sum(probabilities.begin(), probabilities.end(), cumulative.begin());
  const double total = cumulative.back();
  for (double& value : cumulative) value /= total;
  std::vector<size_t> chosen(count);
  for (size_t& index : chosen) {
    const double uniform = static_cast<double>(Next64() >> 11) * 0x1.0p-53;
    const auto above = std::upper_bound(cumulative.begin(), cumulative.end(), uniform);
    index = static_cast<size_t>(above - cumulative.begin());
  }
  return chosen;
}

}  // namespace everstep
