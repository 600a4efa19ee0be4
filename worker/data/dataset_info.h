// dataset_info.json: which data sets there are, and how their files are to be read. Keys and
// defaults are LLaMA-Factory's.
#ifndef EVERSTEP_WORKER_DATA_DATASET_INFO_H_
#define EVERSTEP_WORKER_DATA_DATASET_INFO_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace everstep {

enum class Formatting { kAlpaca, kSharegpt, kOpenai };

// Names of columns and tags; "" = none. When an entry has "columns", those it does not list are
// none; the same holds for "tags".
struct DatasetColumns {
  std::string prompt = "instruction";
  std::string query = "input";
  std::string response = "output";
  std::string history;
  std::string messages = "conversations";
  std::string system;
  std::string tools;
  std::string images;
  std::string videos;
  std::string audios;
  bool given = false;  // the entry has "columns": all of them must exist
};

struct DatasetTags {
  std::string role = "from";
  std::string content = "value";
  std::string user = "human";
  std::string assistant = "gpt";
  std::string observation = "observation";
  std::string function = "function_call";
  std::string system = "system";
};

struct DatasetEntry {
  std::string name;
  std::string path;  // of the file or folder, dataset_dir included
  Formatting formatting = Formatting::kAlpaca;
  std::optional<int64_t> num_samples;
  DatasetColumns columns;
  DatasetTags tags;
};

// The entries of `names` in `dataset_dir`/dataset_info.json, in the order of `names`. Errors name
// the file, the entry, the key and the remedy. Keys that nobody knows become warnings.
Result<std::vector<DatasetEntry>> FindDatasets(const std::string& dataset_dir,
                                               std::span<const std::string> names,
                                               std::vector<std::string>& warnings);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_DATASET_INFO_H_
