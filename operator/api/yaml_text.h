// JSON as YAML in block style, for files that people read.
#ifndef EVERSTEP_OPERATOR_API_YAML_TEXT_H_
#define EVERSTEP_OPERATOR_API_YAML_TEXT_H_

#include <string>

#include "common/json.h"

namespace everstep {

// `value` is an object. Text that a YAML parser could take for something else is quoted.
std::string YamlText(const OrderedJson& value);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_API_YAML_TEXT_H_
