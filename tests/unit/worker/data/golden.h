// Reads the golden files of token ids. "trained" holds alternating lengths: not trained, trained,
// not trained, ...; a trained label equals its id.
#ifndef EVERSTEP_TESTS_UNIT_WORKER_DATA_GOLDEN_H_
#define EVERSTEP_TESTS_UNIT_WORKER_DATA_GOLDEN_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/files.h"
#include "common/json.h"
#include "tests/support/paths.h"
#include "worker/data/example.h"

namespace everstep {

// The date that the golden tool prompts contain: 30 Nov 2026.
inline WallTime GoldenDay() { return WallTime(std::chrono::seconds(1796040000)); }

inline std::vector<Json> ReadGoldenLines(const std::string& name) {
  std::vector<Json> lines;
  std::istringstream text(ReadFile(GoldenPath(name)).value());
  for (std::string line; std::getline(text, line);) {
    lines.push_back(ParseJson(line, name).value());
  }
  EXPECT_FALSE(lines.empty()) << name;
  return lines;
}

inline std::vector<int64_t> GoldenLabels(const Json& ids, const Json& trained) {
  std::vector<int64_t> labels = ids.get<std::vector<int64_t>>();
  size_t at = 0;
  for (size_t run = 0; run < trained.size(); ++run) {
    const size_t end = at + trained[run].get<size_t>();
    for (; at < end; ++at) {
      if (run % 2 == 0) labels.at(at) = kIgnoreLabel;
    }
  }
  EXPECT_EQ(at, labels.size());
  return labels;
}

}  // namespace everstep

#endif  // EVERSTEP_TESTS_UNIT_WORKER_DATA_GOLDEN_H_
