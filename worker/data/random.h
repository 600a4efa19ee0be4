// The random sequences of torch and numpy that decide LLaMA-Factory's data order, bit for bit.
#ifndef EVERSTEP_WORKER_DATA_RANDOM_H_
#define EVERSTEP_WORKER_DATA_RANDOM_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace everstep {

// MT19937 seeded by one 32-bit number (Matsumoto and Nishimura 1998, init_genrand), as both torch
// and numpy's RandomState use it.
class Mt19937 {
 public:
  explicit Mt19937(uint32_t seed);
  uint32_t Next();

 private:
  void Refill();

  static constexpr int kWords = 624;
  std::array<uint32_t, kWords> state_;
  int next_ = kWords;
};

// torch.randperm(n) of a CPU generator seeded with `seed`. n is below 2^32 / 20.
std::vector<uint32_t> TorchPermutation(uint32_t n, uint64_t seed);

// numpy's global functions after np.random.seed(seed).
class NumpyLegacyRandom {
 public:
  explicit NumpyLegacyRandom(uint32_t seed) : generator_(seed) {}

  // np.random.permutation(n)
  std::vector<size_t> Permutation(size_t n);
  // np.random.choice(n, count): with replacement, uniform.
  std::vector<size_t> Choice(size_t n, size_t count);

 private:
  Mt19937 generator_;
};

// np.random.default_rng(seed): PCG64 (XSL-RR 128/64; O'Neill 2014) seeded through SeedSequence.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint64_t seed);

  // .permutation(n), n below 2^32
  std::vector<size_t> Permutation(size_t n);
  // .choice(probabilities.size(), count, p=probabilities). Probabilities are positive; they are
  // scaled to sum 1.
  std::vector<size_t> Choice(std::span<const double> probabilities, size_t count);

 private:
  __extension__ using Uint128 = unsigned __int128;

  void Step();
  uint64_t Next64();
  uint32_t Next32();

  Uint128 state_ = 0;
  Uint128 increment_ = 0;
  bool has_half_ = false;
  uint32_t half_ = 0;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_RANDOM_H_
