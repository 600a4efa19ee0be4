// One training sequence as token ids.
#ifndef EVERSTEP_WORKER_DATA_EXAMPLE_H_
#define EVERSTEP_WORKER_DATA_EXAMPLE_H_

#include <cstdint>
#include <vector>

namespace everstep {

inline constexpr int32_t kIgnoreLabel = -100;

struct Example {
  std::vector<int32_t> ids;
  std::vector<int32_t> labels;  // as long as ids; kIgnoreLabel = not trained on
  // Only of packed rows, then as long as ids. Positions start again with every sequence.
  std::vector<int32_t> positions = {};
  // Only of neatly packed rows: number of the sequence, from 1; 0 = padding.
  std::vector<int32_t> segments = {};
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_EXAMPLE_H_
