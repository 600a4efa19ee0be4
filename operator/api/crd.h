// The CustomResourceDefinition of TrainingJobs, made from the tables of fields and rules.
#ifndef EVERSTEP_OPERATOR_API_CRD_H_
#define EVERSTEP_OPERATOR_API_CRD_H_

#include <string>

#include "common/json.h"

namespace everstep {

OrderedJson BuildCrd();

// As crds/everstep.dev_trainingjobs.yaml has it.
std::string CrdYaml();

// Every field of a TrainingJob, a line each: "spec.replicas: integer 1..4096, default 1, live".
std::string FieldListText();

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_API_CRD_H_
