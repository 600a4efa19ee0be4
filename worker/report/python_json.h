// JSON as Python's json.dumps writes it: the files that transformers and LLaMA-Factory leave look
// the same, number by number.
#ifndef EVERSTEP_WORKER_REPORT_PYTHON_JSON_H_
#define EVERSTEP_WORKER_REPORT_PYTHON_JSON_H_

#include <string>

#include "common/json.h"

namespace everstep {

// repr(float): the shortest digits that give the same double again, with an exponent below 1e-4
// and from 1e16 on: "0.0001", "1e-05", "12.0", "1e+16", "NaN", "Infinity".
std::string PythonFloat(double value);

// round(value, digits): to the nearest decimal, computed exactly.
double PythonRound(double value, int digits);

// json.dumps(value) (indent 0: one line, ", " and ": ") or json.dumps(value, indent=indent).
// Keys in the order of the object.
std::string PythonJson(const OrderedJson& value, int indent = 0);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_REPORT_PYTHON_JSON_H_
