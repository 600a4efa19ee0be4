// From a training file's keys to the argument groups of TrainConfig, in two steps: each key by
// itself (type, range, choice), then what keys say together.
#ifndef EVERSTEP_WORKER_CONFIG_ARGUMENTS_H_
#define EVERSTEP_WORKER_CONFIG_ARGUMENTS_H_

#include "worker/config/key_reader.h"
#include "worker/config/train_config.h"

namespace everstep {

// Fills `config` from all supported keys.
void ReadArguments(KeyReader* reader, const EnvironmentLookup& environment, TrainConfig* config);

// Checks across keys, LLaMA-Factory's and transformers' own where they apply to pt and sft, and
// values that follow from others. A check is left out where a key of its has failed already.
void CheckArguments(KeyReader* reader, TrainConfig* config);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CONFIG_ARGUMENTS_H_
