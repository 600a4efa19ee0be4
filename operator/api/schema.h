// The surface of a TrainingJob as data: each field's path, type, range, choices, default and
// whether it may change while the job runs. Manifests are checked against it, and the CRD is made
// from it.
#ifndef EVERSTEP_OPERATOR_API_SCHEMA_H_
#define EVERSTEP_OPERATOR_API_SCHEMA_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/document.h"

namespace everstep {

enum class FieldType {
  kObject,   // a mapping whose fields have rules of their own
  kOpen,     // a mapping of which some fields have
  kMapping,  // any mapping
  kTextMap,  // a mapping of text to text
  kFree,     // anything
  kInteger,
  kNumber,
  kIntegerOrAuto,
  kBool,
  kText,
  kTextList,
  kIntegerList,
  kList  // of objects, whose fields have rules of their own: "spec.env.name" of each entry
};

// What a text has to look like.
struct TextForm {
  std::string_view pattern;  // the same to ECMAScript and RE2
  std::string_view must;     // "must be a size such as 100Gi"
};

struct FieldRule {
  std::string_view path;  // "spec.elastic.minReplicas"
  FieldType type;
  std::string_view about;  // for kubectl explain
  double minimum = 0;      // of a number, or of each of a list
  double maximum = 1e9;
  std::vector<std::string_view> choices = {};  // of a text, or of each of a list; empty = any
  const TextForm* form = nullptr;              // of a text; null: any
  size_t longest = 0;                          // characters of a text, or of each of a list
  size_t most = 0;                             // entries of a list or a mapping
  std::string_view preset = {};                // the default, as JSON
  bool required = false;                       // where the object that it is in is given
  bool live = false;                           // it, and all below, may change while the job runs
};

// Parents stand before their fields.
std::span<const FieldRule> TrainingJobFields();
// Null: there is no such field.
const FieldRule* FindField(std::string_view path);
// Of the fields right below `parent` ("" for the top), in order.
std::vector<const FieldRule*> FieldsBelow(std::string_view parent);
// The last word of the path.
std::string_view FieldName(const FieldRule& field);

// Everything in `document` that the rules do not allow, a line each: "job.yaml:7: spec.replicas:
// must be at least 1, is 0".
std::vector<std::string> CheckFields(const Document& document);

// Whether `text` has the form. A text longer than any field with a form may be has it not.
bool HasForm(const std::string& text, const TextForm& form);

// A number as people write it: "5", "0.25".
std::string NumberText(double number);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_API_SCHEMA_H_
