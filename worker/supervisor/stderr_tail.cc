#include "worker/supervisor/stderr_tail.h"

namespace everstep {

std::string StderrTail::Append(std::string_view bytes) {
  tail_.append(bytes);
  // One byte more than is shown, to see whether the cut falls on the start of a line.
  if (tail_.size() > 2 * wire::kLastWordsBytes) {
    tail_.erase(0, tail_.size() - wire::kLastWordsBytes - 1);
  }
  std::string out;
  line_.append(bytes);
  size_t start = 0;
  for (size_t end = line_.find('\n'); end != std::string::npos; end = line_.find('\n', start)) {
    out.append(prefix_).append(line_, start, end + 1 - start);
    start = end + 1;
  }
  line_.erase(0, start);
  if (line_.size() >= kMaxLineBytes) out += Rest();
  return out;
}

std::string StderrTail::Rest() {
  if (line_.empty()) return "";
  std::string out = prefix_ + line_ + "\n";
  line_.clear();
  return out;
}

std::string StderrTail::LastWords() const {
  if (tail_.size() <= wire::kLastWordsBytes) return tail_;
  const size_t cut = tail_.size() - wire::kLastWordsBytes;
  const size_t line = tail_.find('\n', cut - 1);
  const bool has_line = line != std::string::npos && line + 1 < tail_.size();
  return tail_.substr(has_line ? line + 1 : cut);
}

}  // namespace everstep
