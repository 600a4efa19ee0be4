#include "operator/shell/incident_json.h"

#include <cmath>

namespace everstep {

OrderedJson IncidentToJson(const Incident& incident) {
  OrderedJson json;
  json["id"] = incident.id;
  json["cause"] = IncidentCauseName(incident.cause);
  json["rank"] = incident.rank;
  if (!incident.further_ranks.empty()) json["furtherRanks"] = incident.further_ranks;
  json["pod"] = incident.pod;
  json["node"] = incident.node;
  if (incident.cause == IncidentCause::kExited) json["exitCode"] = incident.exit_code;
  if (incident.cause == IncidentCause::kSignaled) json["signal"] = incident.signal;
  json["generation"] = incident.generation_before;
  json["generationAfter"] = incident.generation_after;
  json["interruptedStep"] = incident.interrupted_step;
  json["lostSteps"] = incident.lost_steps;
  json["action"] = incident.action;
  OrderedJson seconds = OrderedJson::object();
  const auto add = [&](const char* stage, const std::optional<double>& value) {
    if (value) seconds[stage] = std::round(*value * 1e4) / 1e4;
  };
  add("detect", incident.stages.detect_seconds);
  add("regroup", incident.stages.regroup_seconds);
  add("redo", incident.stages.redo_seconds);
  add("restart", incident.stages.restart_seconds);
  add("rejoin", incident.stages.rejoin_seconds);
  json["seconds"] = seconds;
  if (!incident.last_words.empty()) json["lastWords"] = incident.last_words;
  json["closed"] = incident.closed;
  return json;
}

}  // namespace everstep
