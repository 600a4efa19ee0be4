// What a test's program writes to standard output and standard error.
#ifndef EVERSTEP_TESTS_SUPPORT_CAPTURED_OUTPUT_H_
#define EVERSTEP_TESTS_SUPPORT_CAPTURED_OUTPUT_H_

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>

namespace everstep {

struct Output {
  std::string out;
  std::string err;
};

inline Output CaptureOutput(const std::function<void()>& act) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  act();
  Output output;
  output.err = testing::internal::GetCapturedStderr();
  output.out = testing::internal::GetCapturedStdout();
  return output;
}

}  // namespace everstep

#endif  // EVERSTEP_TESTS_SUPPORT_CAPTURED_OUTPUT_H_
