// Writes checkpoint after checkpoint into a folder until it is killed, with retention and a
// replacement now and then, and announces each complete one on standard output:
//   checkpoint_loop DIRECTORY GENERATION FIRST_STEP
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/unit/worker/checkpoint/checkpoint_fixture.h"
#include "worker/checkpoint/checkpoint_store.h"

int main(int argc, char** argv) {
  using everstep::testing::ContentOf;
  constexpr int64_t kMostSteps = 1000000;
  if (argc != 4) return 2;
  everstep::CheckpointStore store(argv[1], {.run = "job", .free_space = {}});
  if (!store.TakeOver(std::strtoull(argv[2], nullptr, 10))) return 3;
  const int64_t first = std::strtoll(argv[3], nullptr, 10);
  for (int64_t step = first; step < first + kMostSteps; ++step) {
    if (!store.Write(ContentOf(step))) return 4;
    const std::string line = std::to_string(step) + "\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0) return 5;
    if (step % 3 == 0 && !store.Write(ContentOf(step))) return 6;
    if (!store.Retain({.total_limit = 2, .best_step = {}, .milestone_steps = 0})) return 7;
  }
  return 0;
}
