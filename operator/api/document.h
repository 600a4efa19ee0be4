// A YAML (or JSON) document as JSON, with the line of every value for messages.
#ifndef EVERSTEP_OPERATOR_API_DOCUMENT_H_
#define EVERSTEP_OPERATOR_API_DOCUMENT_H_

#include <map>
#include <string>
#include <string_view>

#include "common/json.h"
#include "common/result.h"

namespace everstep {

struct Document {
  std::string source;
  OrderedJson value;
  std::map<std::string, int> lines;  // path ("spec.replicas", "spec.env[0].name") -> line, from 1

  // "job.yaml:7: " for the path, or for its nearest parent that has a line.
  std::string Where(const std::string& path) const;
};

// Exactly one document, whose scalars are typed by YAML's core schema ("1e-4" is a number). An
// empty file, several documents, a repeated key or a syntax error is one line with its place.
Result<Document> ParseDocument(std::string_view text, const std::string& source);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_API_DOCUMENT_H_
