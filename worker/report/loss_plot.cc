#include "worker/report/loss_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace everstep {
namespace {

constexpr double kWidth = 640, kHeight = 480;
constexpr double kLeft = 72, kRight = 20, kTop = 44, kBottom = 54;
constexpr size_t kMaxPoints = 2000;  // more cannot be told apart on the picture
constexpr int kTargetTicks = 8;
constexpr char kBlue[] = "#1f77b4";

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

// Round numbers over a range: multiples of 1, 2 or 5 times a power of ten.
struct Axis {
  double low = 0, high = 1, tick = 1;
  int decimals = 0;

  // `least_tick` keeps the ticks of a step axis whole.
  static Axis Over(double low, double high, double least_tick) {
    if (high <= low) {
      const double margin = std::max(least_tick, std::abs(low) * 0.05);
      low -= margin > 0 ? margin : 1;
      high += margin > 0 ? margin : 1;
    }
    const double rough = (high - low) / kTargetTicks;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double tick = 10 * power;
    for (double factor : {5.0, 2.0, 1.0}) {
      if (factor * power >= rough) tick = factor * power;
    }
    tick = std::max(tick, least_tick);
    Axis axis{low, high, tick, 0};
    axis.decimals = std::max(0, -static_cast<int>(std::floor(std::log10(tick) + 1e-9)));
    return axis;
  }

  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    const double first = std::ceil(low / tick - 1e-9);
    for (double i = first; i * tick <= high + tick * 1e-9; ++i) ticks.push_back(i * tick);
    return ticks;
  }
  std::string Label(double value) const {
    // No "-0.0" for what rounding left of zero.
    if (std::abs(value) < tick * 1e-6) value = 0;
    if (std::abs(value) >= 1e6 || decimals > 6) return Format("%.3g", value);
    return Format(("%." + std::to_string(decimals) + "f").c_str(), value);
  }
};

double X(const Axis& axis, double value) {
  return kLeft + (value - axis.low) / (axis.high - axis.low) * (kWidth - kLeft - kRight);
}
double Y(const Axis& axis, double value) {
  return kHeight - kBottom -
         (value - axis.low) / (axis.high - axis.low) * (kHeight - kTop - kBottom);
}

std::string Line(double x1, double y1, double x2, double y2, const char* color) {
  return "<line x1=\"" + Format("%.1f", x1) + "\" y1=\"" + Format("%.1f", y1) + "\" x2=\"" +
         Format("%.1f", x2) + "\" y2=\"" + Format("%.1f", y2) + "\" stroke=\"" + color + "\"/>\n";
}

std::string Text(double x, double y, const char* anchor, const std::string& text,
                 const char* attributes = "") {
  return "<text x=\"" + Format("%.1f", x) + "\" y=\"" + Format("%.1f", y) + "\" text-anchor=\"" +
         anchor + "\"" + attributes + ">" + Escaped(text) + "</text>\n";
}

std::string Grid(const Axis& x, const Axis& y) {
  const double bottom = kHeight - kBottom;
  std::string svg;
  for (double tick : x.Ticks()) {
    svg += Line(X(x, tick), kTop, X(x, tick), bottom, "#e6e6e6");
    svg += Text(X(x, tick), bottom + 18, "middle", x.Label(tick));
  }
  for (double tick : y.Ticks()) {
    svg += Line(kLeft, Y(y, tick), kWidth - kRight, Y(y, tick), "#e6e6e6");
    svg += Text(kLeft - 8, Y(y, tick) + 4, "end", y.Label(tick));
  }
  svg += "<rect x=\"" + Format("%.1f", kLeft) + "\" y=\"" + Format("%.1f", kTop) + "\" width=\"" +
         Format("%.1f", kWidth - kLeft - kRight) + "\" height=\"" + Format("%.1f", bottom - kTop) +
         "\" fill=\"none\" stroke=\"#444444\"/>\n";
  return svg;
}

std::string Curve(const Axis& x, const Axis& y, const std::vector<int64_t>& steps,
                  const std::vector<double>& values, double opacity) {
  const std::string style =
      std::string("stroke=\"") + kBlue + "\" stroke-opacity=\"" + Format("%.1f", opacity) + "\"";
  if (values.size() == 1) {
    return "<circle cx=\"" + Format("%.1f", X(x, static_cast<double>(steps[0]))) + "\" cy=\"" +
           Format("%.1f", Y(y, values[0])) + "\" r=\"3\" fill=\"" + kBlue + "\" " + style + "/>\n";
  }
  const size_t stride = (values.size() - 1) / kMaxPoints + 1;
  std::string points;
  const auto add = [&](size_t i) {
    points += Format("%.1f", X(x, static_cast<double>(steps[i]))) + "," +
              Format("%.1f", Y(y, values[i])) + " ";
  };
  for (size_t i = 0; i + 1 < values.size(); i += stride) add(i);
  add(values.size() - 1);
  points.pop_back();
  return "<polyline fill=\"none\" stroke-width=\"1.6\" stroke-linejoin=\"round\" " + style +
         " points=\"" + points + "\"/>\n";
}

std::string Legend() {
  const double right = kWidth - kRight - 12;
  const double left = right - 112;
  std::string svg = "<rect x=\"" + Format("%.1f", left) + "\" y=\"" + Format("%.1f", kTop + 8) +
                    "\" width=\"116\" height=\"46\" rx=\"3\" fill=\"#ffffff\" "
                    "fill-opacity=\"0.85\" stroke=\"#cccccc\"/>\n";
  double y = kTop + 24;
  for (const auto& [name, opacity] : {std::pair("original", "0.4"), std::pair("smoothed", "1.0")}) {
    svg += "<line x1=\"" + Format("%.1f", left + 8) + "\" y1=\"" + Format("%.1f", y) + "\" x2=\"" +
           Format("%.1f", left + 34) + "\" y2=\"" + Format("%.1f", y) + "\" stroke=\"" + kBlue +
           "\" stroke-width=\"2\" stroke-opacity=\"" + opacity + "\"/>\n";
    svg += Text(left + 42, y + 4, "start", name);
    y += 18;
  }
  return svg;
}

// A long directory would run out of the picture: its end tells more than its beginning.
std::string Shortened(std::string_view title) {
  constexpr size_t kMaxCharacters = 72;
  if (title.size() <= kMaxCharacters) return std::string(title);
  const size_t space = title.rfind(' ');
  const std::string head(space < 40 ? title.substr(0, space + 1) : "");
  size_t tail = title.size() - (kMaxCharacters - head.size() - 3);
  while (tail < title.size() && (static_cast<unsigned char>(title[tail]) & 0xC0) == 0x80) ++tail;
  return head + "..." + std::string(title.substr(tail));
}

}  // namespace

LossCurve CurveOf(const LogHistory& history, const std::string& key) {
  LossCurve curve;
  for (const LogRecord& record : history.records()) {
    const auto value = record.values.find(key);
    if (value == record.values.end() || !std::isfinite(value->second)) continue;
    curve.steps.push_back(record.step);
    curve.values.push_back(value->second);
  }
  return curve;
}

std::vector<double> Smooth(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  const double weight = 1.8 * (1 / (1 + std::exp(-0.05 * count)) - 0.5);
  std::vector<double> smoothed;
  double last = values.front();
  for (double value : values) {
    last = last * weight + (1 - weight) * value;
    smoothed.push_back(last);
  }
  return smoothed;
}

std::string LossPlotSvg(const LossCurve& curve, std::string_view title, std::string_view y_label) {
  if (curve.values.empty()) return "";
  const auto [low, high] = std::ranges::minmax(curve.values);
  const double margin = (high - low) * 0.05;
  const Axis x = Axis::Over(static_cast<double>(curve.steps.front()),
                            static_cast<double>(curve.steps.back()), 1);
  const Axis y = Axis::Over(low - margin, high + margin, 0);
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"480\" "
      "viewBox=\"0 0 640 480\" font-family=\"sans-serif\" font-size=\"12\" "
      "fill=\"#222222\">\n<rect width=\"640\" height=\"480\" fill=\"#ffffff\"/>\n";
  svg += Text(kWidth / 2, kTop - 18, "middle", Shortened(title), " font-size=\"14\"");
  svg += Grid(x, y);
  svg += Curve(x, y, curve.steps, curve.values, 0.4);
  svg += Curve(x, y, curve.steps, Smooth(curve.values), 1.0);
  svg += Legend();
  svg += Text(kLeft + (kWidth - kLeft - kRight) / 2, kHeight - 14, "middle", "step");
  svg += Text(18, kTop + (kHeight - kTop - kBottom) / 2, "middle", std::string(y_label),
              (" transform=\"rotate(-90 18 " +
               Format("%.1f", kTop + (kHeight - kTop - kBottom) / 2) + ")\"")
                  .c_str());
  return svg + "</svg>\n";
}

}  // namespace everstep
