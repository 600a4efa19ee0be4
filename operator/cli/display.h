// Shows a job's run to a person: a progress bar on a terminal, plain lines in a pipe, or one JSON
// object a line.
#ifndef EVERSTEP_OPERATOR_CLI_DISPLAY_H_
#define EVERSTEP_OPERATOR_CLI_DISPLAY_H_

#include <map>
#include <mutex>
#include <string>

#include "operator/shell/controller.h"

namespace everstep {

enum class DisplayMode { kTerminal, kPlain, kJson, kQuiet };

// Thread-safe.
class Display final : public JobObserver {
 public:
  explicit Display(DisplayMode mode) : mode_(mode) {}

  void OnPhase(const std::string& job, const OrderedJson& status) override;
  void OnProgress(const std::string& job, const wire::Progress& progress) override;
  void OnCheckpoint(const std::string& job, const wire::CheckpointSaved& saved) override;
  void OnIncident(const std::string& job, const Incident& incident) override;
  void OnMembership(const std::string& job, const wire::Membership& membership,
                    const std::string& reason) override;

  // What the job came to: result, output directory, incidents.
  void ShowResult(const std::string& job, const OrderedJson& status,
                  const std::string& run_directory);
  void Line(const std::string& text);

 private:
  void LineLocked(const std::string& text);
  void ClearBarLocked();

  const DisplayMode mode_;
  std::mutex mutex_;
  bool bar_shown_ = false;
  std::string last_phase_;
  std::map<uint64_t, int> incident_stage_;  // id -> what has been said of it
};

// "12.3 ms", "1.50 s".
std::string FormatSeconds(double seconds);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CLI_DISPLAY_H_
