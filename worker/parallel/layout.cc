#include "worker/parallel/layout.h"

#include <utility>

namespace everstep {

void AppendEntry(FlatLayout& layout, LayoutEntry entry) {
  entry.numel = 1;
  for (const int64_t extent : entry.shape) entry.numel *= extent;
  entry.offset = layout.size;
  const int64_t end = entry.offset + entry.numel;
  layout.size = (end + kLayoutAlignment - 1) / kLayoutAlignment * kLayoutAlignment;
  layout.entries.push_back(std::move(entry));
}

}  // namespace everstep
