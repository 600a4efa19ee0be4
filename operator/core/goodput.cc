#include "operator/core/goodput.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace everstep {

void CountGoodput(OrderedJson& status, int64_t step, double step_seconds,
                  int64_t now_unix_seconds) {
  OrderedJson& goodput = status["goodput"];
  if (!goodput.is_object()) {
    // The time before the first report is that of its step.
    goodput = {{"sinceUnixSeconds", now_unix_seconds - std::llround(std::ceil(step_seconds))},
               {"countedStep", step - 1}};
  }
  const int64_t counted = goodput.value("countedStep", int64_t{0});
  const auto steps = static_cast<double>(std::max<int64_t>(0, step - counted));
  const double productive = goodput.value("productiveSeconds", 0.0) + steps * step_seconds;
  const auto elapsed =
      static_cast<double>(now_unix_seconds - goodput.value("sinceUnixSeconds", now_unix_seconds));
  const double ratio = elapsed > 0 ? std::min(1.0, productive / elapsed) : 1.0;
  char text[16];
  std::snprintf(text, sizeof(text), "%.3f", ratio);
  goodput["countedStep"] = std::max(step, counted);
  goodput["productiveSeconds"] = std::round(productive * 1000) / 1000;
  goodput["ratio"] = text;
}

}  // namespace everstep
