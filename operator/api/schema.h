// The surface of a TrainingJob as data: each field's path, type, range and choices. The manifest is
// checked against it, and the CRD's schema says the same.
#ifndef EVERSTEP_OPERATOR_API_SCHEMA_H_
#define EVERSTEP_OPERATOR_API_SCHEMA_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/document.h"

namespace everstep {

enum class FieldType {
  kObject,   // a mapping whose fields have rules of their own
  kMapping,  // any mapping
  kFree,     // anything
  kInteger,
  kNumber,
  kIntegerOrAuto,
  kBool,
  kText,
  kTextList,
  kIntegerList,
  kList
};

struct FieldRule {
  std::string_view path;  // "spec.elastic.minReplicas"
  FieldType type;
  double minimum = 0;
  double maximum = 1e9;
  std::vector<std::string_view> choices = {};  // of a text; empty = any
};

std::span<const FieldRule> TrainingJobFields();

// Everything in `document` that the rules do not allow, a line each: "job.yaml:7: spec.replicas:
// must be at least 1, is 0".
std::vector<std::string> CheckFields(const Document& document);

// A number as people write it: "5", "0.25".
std::string NumberText(double number);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_API_SCHEMA_H_
