#include "operator/rendezvous/incident.h"

#include <csignal>
#include <cstring>

namespace everstep {
namespace {

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

std::string WhatHappened(const Incident& incident) {
  switch (incident.cause) {
    case IncidentCause::kExited:
      return "exited with code " + std::to_string(incident.exit_code);
    case IncidentCause::kSignaled:
      return "was killed by " + SignalName(incident.signal);
    case IncidentCause::kHung:
      return "made no progress and was killed";
    case IncidentCause::kStartFailed:
      return "could not be started";
    case IncidentCause::kVanished:
      return "vanished with its supervisor";
    case IncidentCause::kReplaced:
      return "was replaced by a newer incarnation of its pod";
  }
  return "died";
}

}  // namespace

std::string_view IncidentCauseName(IncidentCause cause) {
  switch (cause) {
    case IncidentCause::kExited:
      return "exited";
    case IncidentCause::kSignaled:
      return "signaled";
    case IncidentCause::kHung:
      return "hung";
    case IncidentCause::kStartFailed:
      return "start-failed";
    case IncidentCause::kVanished:
      return "vanished";
    case IncidentCause::kReplaced:
      return "replaced";
  }
  return "unknown";
}

std::string DescribeIncident(const Incident& incident) {
  std::string text = "rank " + std::to_string(incident.rank);
  if (!incident.pod.empty()) text += " (pod " + incident.pod + ")";
  text += " " + WhatHappened(incident);
  if (!incident.further_ranks.empty()) {
    text += ", " + std::to_string(incident.further_ranks.size()) + " more with it";
  }
  return text;
}

}  // namespace everstep
