// README.md of what a run saves: a short model card with the front matter that hubs read.
#ifndef EVERSTEP_WORKER_REPORT_MODEL_CARD_H_
#define EVERSTEP_WORKER_REPORT_MODEL_CARD_H_

#include <string>
#include <utility>
#include <vector>

#include "worker/report/results.h"

namespace everstep {

struct ModelCard {
  std::string name;        // last part of output_dir
  std::string base_model;  // model_name_or_path
  std::string finetuning_type;
  std::string stage;
  std::vector<std::string> datasets;
  // Rows of the hyperparameter list: name and value.
  std::vector<std::pair<std::string, std::string>> settings;
  Metrics results;
};

std::string ModelCardText(const ModelCard& card);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_REPORT_MODEL_CARD_H_
