#include "worker/model/pass_context.h"

namespace everstep {
namespace {

// SplitMix64 (Steele et al., 2014): spreads small differences over all bits.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

}  // namespace

uint64_t DrawSeed(const MicroBatchKey& key, int64_t place) {
  uint64_t seed = Mix(key.seed);
  seed = Mix(seed ^ static_cast<uint64_t>(key.step));
  seed = Mix(seed ^ static_cast<uint64_t>(key.logical_rank));
  seed = Mix(seed ^ static_cast<uint64_t>(key.accumulation));
  return Mix(seed ^ static_cast<uint64_t>(place));
}

float DrawUniform(uint64_t seed, uint64_t index) {
  return static_cast<float>(Mix(seed + index * 0x9e3779b97f4a7c15ull) >> 40) * 0x1p-24f;
}

}  // namespace everstep
