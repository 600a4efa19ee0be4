// JSON text as Python's json.dumps(value, ensure_ascii=False) writes it: ", " and ": " between
// items, floats in repr() form, keys in their order. Tool prompts contain such text, so it decides
// token ids.
#ifndef EVERSTEP_WORKER_DATA_PYTHON_JSON_H_
#define EVERSTEP_WORKER_DATA_PYTHON_JSON_H_

#include <string>

#include "common/json.h"

namespace everstep {

std::string PythonJsonUtf8(const OrderedJson& value);
// With indent=`indent`: one item a line.
std::string PythonJsonUtf8(const OrderedJson& value, int indent);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_PYTHON_JSON_H_
