// An incident as status.incidents shows it.
#ifndef EVERSTEP_OPERATOR_SHELL_INCIDENT_JSON_H_
#define EVERSTEP_OPERATOR_SHELL_INCIDENT_JSON_H_

#include "common/json.h"
#include "operator/rendezvous/incident.h"

namespace everstep {

OrderedJson IncidentToJson(const Incident& incident);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_SHELL_INCIDENT_JSON_H_
