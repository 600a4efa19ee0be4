// The loss curve as an SVG picture: original and smoothed, as in LLaMA-Factory's plot.
#ifndef EVERSTEP_WORKER_REPORT_LOSS_PLOT_H_
#define EVERSTEP_WORKER_REPORT_LOSS_PLOT_H_

#include <string>
#include <string_view>
#include <vector>

#include "worker/report/log_history.h"

namespace everstep {

struct LossCurve {
  std::vector<int64_t> steps;
  std::vector<double> values;
};
// The records that have `key` ("loss", "eval_loss"), in order. Values that are not finite are left
// out.
LossCurve CurveOf(const LogHistory& history, const std::string& key);

// Exponential average whose weight grows with the length: 1.8 * (sigmoid(0.05 * n) - 0.5).
std::vector<double> Smooth(const std::vector<double>& values);

// A whole SVG document, or "" for a curve without points. `title`: "training loss of <directory>".
std::string LossPlotSvg(const LossCurve& curve, std::string_view title, std::string_view y_label);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_REPORT_LOSS_PLOT_H_
