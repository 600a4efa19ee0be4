// A program that does nothing but run the pods of a store, for the tests that kill it:
// runtime_test_host STATE_DIRECTORY RUN_DIRECTORY PROGRAM_DIRECTORY. Writes a line when it runs.
#include <unistd.h>

#include <cstdio>

#include "operator/local/process_runtime.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const everstep::SystemClock clock;
  auto store = everstep::ObjectStore::Open(argv[1], clock);
  if (!store) return 1;
  auto runtime = everstep::ProcessRuntime::Start(
      {.run_directory = argv[2], .program_directory = argv[3]}, **store, clock);
  if (!runtime) return 1;
  std::puts("runs");
  std::fflush(stdout);
  while (true) pause();
}
