// Time as a parameter. Pure code takes a TimePoint; only shells hold a Clock.
#ifndef EVERSTEP_COMMON_CLOCK_H_
#define EVERSTEP_COMMON_CLOCK_H_

#include <chrono>
#include <string>

namespace everstep {

// Monotonic time, for durations and deadlines.
using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;
// Wall-clock time, for what people and manifests read.
using WallTime = std::chrono::system_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
  virtual WallTime WallNow() const = 0;
};

class SystemClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  WallTime WallNow() const override { return std::chrono::system_clock::now(); }
};

// A clock that moves when it is told to. Used by tests and simulations.
class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  WallTime WallNow() const override { return wall_; }
  void Advance(Duration by) {
    now_ += by;
    wall_ += std::chrono::duration_cast<WallTime::duration>(by);
  }

 private:
  TimePoint now_{std::chrono::hours(1)};
  WallTime wall_{std::chrono::hours(24 * 365 * 56)};
};

inline double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
inline double Milliseconds(Duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

// RFC 3339 in UTC with whole seconds, as Kubernetes writes it: "2026-11-30T12:00:00Z".
std::string FormatTime(WallTime time);

}  // namespace everstep

#endif  // EVERSTEP_COMMON_CLOCK_H_
