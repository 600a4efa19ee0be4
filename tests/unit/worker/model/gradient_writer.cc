// Writes the sample gradient of a variant to standard output, as floats, after another history than
// exactness_test's:  gradient_writer full_fp32
#include <cstdio>

#include "tests/unit/worker/model/sample_gradient.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::vector<float> values = everstep::SampleGradient(everstep::ConfigOfVariant(argv[1]),
                                                             {{500, 3}, {17}, {64, 64, 64, 64}});
  const size_t written = std::fwrite(values.data(), sizeof(float), values.size(), stdout);
  return written == values.size() && std::fflush(stdout) == 0 ? 0 : 1;
}
