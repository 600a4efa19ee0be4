// Memory for the tensors of one pass: taken in order, given back all at once or down to a mark. The
// memory stays with the process from step to step, so that no pass pays for fresh pages.
#ifndef EVERSTEP_WORKER_KERNELS_ARENA_H_
#define EVERSTEP_WORKER_KERNELS_ARENA_H_

#include <torch/torch.h>

#include <cstddef>
#include <vector>

namespace everstep {

// One thread at a time. Tensors are 64-byte aligned, which keeps the bits of matrix products the
// same from one process to another, and hold no defined values at first. They are valid until
// their memory is released; the arena does not know who still holds one.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  torch::Tensor Take(at::IntArrayRef shape, torch::ScalarType type = torch::kFloat32);

  struct Mark {
    size_t block = 0;
    size_t used = 0;
  };
  Mark Now() const { return {current_, current_ < blocks_.size() ? blocks_[current_].used : 0}; }
  // Gives back everything that was taken after `mark`.
  void Release(Mark mark);
  // Gives back everything. Blocks that had to be added are joined into one for the next pass.
  void Reset();

 private:
  struct Block {
    std::byte* memory = nullptr;
    size_t size = 0;
    size_t used = 0;
  };
  static Block Allocate(size_t size);
  static void Free(Block& block);

  std::vector<Block> blocks_;
  size_t current_ = 0;
};

// Releases what was taken during its life.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.Now()) {}
  ~ArenaScope() { arena_.Release(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_KERNELS_ARENA_H_
