// Where each trainable parameter lies in the flat fp32 vectors (parameters, gradient, Adam's m
// and v), which all have the same layout.
#ifndef EVERSTEP_WORKER_PARALLEL_LAYOUT_H_
#define EVERSTEP_WORKER_PARALLEL_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace everstep {

// Offsets are multiples of this many elements (256 bytes: whole cache lines and vector registers).
// The padding between entries is zero in every vector and stays zero under every operation.
inline constexpr int64_t kLayoutAlignment = 64;

struct LayoutEntry {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // in elements
  int64_t numel = 0;
  bool decay = true;      // takes part in weight decay
  double lr_scale = 1.0;  // factor on the learning rate (LoRA+)
};

struct FlatLayout {
  std::vector<LayoutEntry> entries;
  int64_t size = 0;  // elements of a flat vector, padding included
};

// Appends an entry at the next aligned offset (its offset and numel are set here, from `shape`) and
// grows the size to the next multiple of kLayoutAlignment.
void AppendEntry(FlatLayout& layout, LayoutEntry entry);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_PARALLEL_LAYOUT_H_
