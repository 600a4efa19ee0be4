#include "operator/cli/display.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/log.h"
#include "common/strings.h"
#include "operator/shell/incident_json.h"

namespace everstep {
namespace {

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string Bar(double share) {
  constexpr int kWidth = 24;
  const int filled = std::clamp(static_cast<int>(share * kWidth), 0, kWidth);
  std::string bar = "[";
  for (int i = 0; i < kWidth; ++i) bar += i < filled ? '#' : '.';
  return bar + "]";
}

std::string StagesText(const Incident& incident) {
  std::string text;
  const auto add = [&](const char* name, const std::optional<double>& seconds) {
    if (!seconds) return;
    text += text.empty() ? "" : ", ";
    text += std::string(name) + " " + FormatSeconds(*seconds);
  };
  add("detected in", incident.stages.detect_seconds);
  add("regrouped in", incident.stages.regroup_seconds);
  add("next step after", incident.stages.redo_seconds);
  add("restarted in", incident.stages.restart_seconds);
  add("rejoined in", incident.stages.rejoin_seconds);
  return text;
}

}  // namespace

std::string FormatSeconds(double seconds) {
  return seconds < 1 ? Format("%.1f ms", seconds * 1e3) : Format("%.2f s", seconds);
}

void Display::ClearBarLocked() {
  if (std::exchange(bar_shown_, false)) std::fputs("\r\033[K", stderr);
}

void Display::LineLocked(const std::string& text) {
  ClearBarLocked();
  std::fprintf(stdout, "%s\n", text.c_str());
  std::fflush(stdout);
}

void Display::Line(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (mode_ == DisplayMode::kJson) {
    LogInfo(text);
  } else if (mode_ != DisplayMode::kQuiet) {
    LineLocked(text);
  }
}

void Display::OnPhase(const std::string& job, const OrderedJson& status) {
  const std::string phase = status.value("phase", "");
  {
    const std::lock_guard lock(mutex_);
    if (phase == last_phase_) return;
    last_phase_ = phase;
  }
  if (mode_ == DisplayMode::kJson) {
    LogInfo("phase", {{"job", job}, {"phase", phase}, {"detail", status.value("message", "")}});
  } else {
    Line(job + ": " + phase);
  }
}

void Display::OnProgress(const std::string& job, const wire::Progress& progress) {
  const std::lock_guard lock(mutex_);
  if (mode_ == DisplayMode::kJson) {
    LogInfo("step", {{"job", job},
                     {"step", progress.step},
                     {"total_steps", progress.total_steps},
                     {"loss", progress.loss},
                     {"grad_norm", progress.grad_norm},
                     {"learning_rate", progress.learning_rate},
                     {"epoch", progress.epoch},
                     {"tokens_per_second", progress.tokens_per_second},
                     {"generation", progress.generation}});
    return;
  }
  if (mode_ == DisplayMode::kQuiet) return;
  const double left = static_cast<double>(progress.total_steps - progress.step);
  const std::string text = "step " + std::to_string(progress.step) + "/" +
                           std::to_string(progress.total_steps) + "  loss " +
                           Format("%.4f", progress.loss) + "  " +
                           Format("%.0f tokens/s", progress.tokens_per_second) + "  ETA " +
                           FormatDuration(left * progress.step_seconds);
  if (mode_ == DisplayMode::kPlain) return LineLocked(text);
  const double share = static_cast<double>(progress.step) /
                       static_cast<double>(std::max<int64_t>(1, progress.total_steps));
  std::fprintf(stderr, "\r\033[K%s %s", Bar(share).c_str(), text.c_str());
  std::fflush(stderr);
  bar_shown_ = true;
}

void Display::OnCheckpoint(const std::string& job, const wire::CheckpointSaved& saved) {
  if (mode_ == DisplayMode::kJson) {
    LogInfo("checkpoint", {{"job", job},
                           {"step", saved.step},
                           {"path", saved.path},
                           {"seconds", saved.seconds},
                           {"warning", saved.warning}});
  } else if (!saved.warning.empty()) {
    Line("warning: checkpoint of step " + std::to_string(saved.step) + ": " + saved.warning);
  } else {
    Line("checkpoint of step " + std::to_string(saved.step) + " saved in " +
         FormatSeconds(saved.seconds));
  }
}

void Display::OnIncident(const std::string& job, const Incident& incident) {
  if (mode_ == DisplayMode::kJson) {
    Json details = Json(IncidentToJson(incident));
    LogInfo("incident", {{"job", job}, {"incident", std::move(details)}});
    return;
  }
  // Said twice: when it happens, and with its figures when it is over.
  const int stage = incident.closed ? 2 : (incident.action.empty() ? 0 : 1);
  {
    const std::lock_guard lock(mutex_);
    int& said = incident_stage_[incident.id];
    if (stage <= said) return;
    said = stage;
  }
  if (stage == 1) return Line("! " + DescribeIncident(incident) + "; " + incident.action);
  // The job may have ended first.
  const bool recovered = incident.stages.rejoin_seconds.has_value();
  const std::string stages = StagesText(incident);
  Line((recovered ? "! recovered from: " : "! not recovered from: ") + DescribeIncident(incident) +
       (stages.empty() ? "" : ": " + stages) + "; lost steps " +
       std::to_string(incident.lost_steps));
}

void Display::OnMembership(const std::string& job, const wire::Membership& membership,
                           const std::string& reason) {
  if (mode_ == DisplayMode::kJson) {
    LogInfo("membership", {{"job", job},
                           {"generation", membership.generation},
                           {"members", membership.members.size()},
                           {"reason", reason}});
  } else {
    Line("generation " + std::to_string(membership.generation) + ": " +
         std::to_string(membership.members.size()) + " members (" + reason + ")");
  }
}

void Display::ShowResult(const std::string& job, const OrderedJson& status,
                         const std::string& run_directory) {
  const std::string phase = status.value("phase", "");
  const std::string message = status.value("message", "");
  if (mode_ == DisplayMode::kJson) {
    LogInfo("result", {{"job", job}, {"phase", phase}, {"detail", message}});
    return;
  }
  if (phase == "Failed") {
    // Said on standard error, and even when quiet.
    const std::lock_guard lock(mutex_);
    ClearBarLocked();
    std::fprintf(stderr, "%s failed: %s\nlogs: %s/logs\n", job.c_str(), message.c_str(),
                 run_directory.c_str());
    return;
  }
  Line(job + " " + (phase == "Succeeded" ? "succeeded: " : "is " + phase + ": ") + message);
  // A program that knows nothing of rendezvous does not say where its results are.
  if (status.contains("finished") && status["finished"].contains("outputDir")) {
    Line("results: " + status["finished"]["outputDir"].get<std::string>());
  }
  if (!status.contains("incidents")) return;
  Line("incidents:");
  for (const OrderedJson& incident : status["incidents"]) {
    Line("  " + incident.value("at", "") + "  rank " + std::to_string(incident.value("rank", -1)) +
         "  " + incident.value("cause", "") + "  lost steps " +
         std::to_string(incident.value("lostSteps", 0)) + "  seconds " +
         DumpJson(incident.value("seconds", OrderedJson::object())));
  }
}

}  // namespace everstep
