// The end of a program's standard error, and its lines as they are to be passed on. Pure.
#ifndef EVERSTEP_WORKER_SUPERVISOR_STDERR_TAIL_H_
#define EVERSTEP_WORKER_SUPERVISOR_STDERR_TAIL_H_

#include <string>
#include <string_view>

#include "common/wire.h"

namespace everstep {

class StderrTail {
 public:
  // A line longer than this is passed on in pieces.
  static constexpr size_t kMaxLineBytes = 16 << 10;

  // `prefix` is put before each line that is passed on ("[rank 2] ", or "").
  explicit StderrTail(std::string prefix) : prefix_(std::move(prefix)) {}

  // Takes what was read and returns what to pass on: whole lines, each with the prefix.
  std::string Append(std::string_view bytes);
  // The unfinished last line, to be passed on at the end.
  std::string Rest();
  // At most wire::kLastWordsBytes; begins at the start of a line where there is one.
  std::string LastWords() const;

 private:
  const std::string prefix_;
  std::string line_;
  std::string tail_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_SUPERVISOR_STDERR_TAIL_H_
