// The CustomResourceDefinition of TrainingJobs, made from the tables of fields and rules.
#ifndef EVERSTEP_OPERATOR_API_CRD_H_
#define EVERSTEP_OPERATOR_API_CRD_H_

#include <string>

#include "common/json.h"

namespace everstep {

OrderedJson BuildCrd();

// As crds/everstep.dev_trainingjobs.yaml has it.
std::string CrdYaml();

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_API_CRD_H_
