// A manifest from a file, checked as far as it can be without running it.
#ifndef EVERSTEP_OPERATOR_CLI_MANIFEST_H_
#define EVERSTEP_OPERATOR_CLI_MANIFEST_H_

#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "operator/api/training_job.h"

namespace everstep {

struct Manifest {
  TrainingJob job;
  OrderedJson object;  // as it goes into the store
  std::vector<std::string> warnings;
};

// "-" reads standard input. Problems of the TrainingJob and of its train section come together, a
// line each, with the manifest's own line numbers.
Result<Manifest> LoadManifest(const std::string& path);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_CLI_MANIFEST_H_
