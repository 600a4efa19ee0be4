// Waiting for what other threads and processes do: until it is so, and never for ever.
#ifndef EVERSTEP_TESTS_SUPPORT_AWAIT_H_
#define EVERSTEP_TESTS_SUPPORT_AWAIT_H_

#include <chrono>
#include <functional>
#include <thread>

namespace everstep {

// False when `condition` has not become true in a minute. The pause between looks only spares the
// processor; no result depends on it.
inline bool AwaitTrue(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace everstep

#endif  // EVERSTEP_TESTS_SUPPORT_AWAIT_H_
