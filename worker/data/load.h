// Loads the data sets that a training file names.
#ifndef EVERSTEP_WORKER_DATA_LOAD_H_
#define EVERSTEP_WORKER_DATA_LOAD_H_

#include <string>
#include <vector>

#include "common/result.h"
#include "worker/config/train_config.h"
#include "worker/data/conversation.h"
#include "worker/data/random.h"

namespace everstep {

struct LoadedSet {
  std::string name;
  std::vector<Conversation> rows;  // after num_samples and max_samples; unusable ones included
};
using LoadedSets = std::vector<LoadedSet>;

// In the order of `names`; a name that occurs again counts once. num_samples of dataset_info.json
// draws from `random`.
Result<LoadedSets> LoadSets(const TrainConfig& config, const std::vector<std::string>& names,
                            NumpyLegacyRandom& random, std::vector<std::string>& warnings);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_LOAD_H_
