#include "worker/data/load.h"

#include <algorithm>
#include <numeric>

#include "worker/data/convert.h"
#include "worker/data/dataset_info.h"
#include "worker/data/mix.h"
#include "worker/data/row_table.h"

namespace everstep {
namespace {

Result<LoadedSet> LoadSet(const TrainConfig& config, const DatasetEntry& entry,
                          NumpyLegacyRandom& random) {
  ASSIGN_OR_RETURN(const RowTable table, ReadRowTable(entry.path));
  RETURN_IF_ERROR(CheckColumns(entry, table, config.finetuning.stage == Stage::kSft));
  std::vector<size_t> rows(table.rows.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  if (entry.num_samples) {
    rows = SampleRows(rows.size(), static_cast<size_t>(*entry.num_samples), random);
  }
  if (config.data.max_samples) {
    rows.resize(std::min(rows.size(), static_cast<size_t>(*config.data.max_samples)));
  }
  LoadedSet set{.name = entry.name, .rows = {}};
  set.rows.reserve(rows.size());
  for (const size_t row : rows) {
    ASSIGN_OR_RETURN(Conversation conversation, ConvertRow(entry, table, row));
    set.rows.push_back(std::move(conversation));
  }
  return set;
}

}  // namespace

Result<LoadedSets> LoadSets(const TrainConfig& config, const std::vector<std::string>& names,
                            NumpyLegacyRandom& random, std::vector<std::string>& warnings) {
  LoadedSets sets;
  if (names.empty()) return sets;
  std::vector<std::string> unique;
  for (const std::string& name : names) {
    if (std::find(unique.begin(), unique.end(), name) == unique.end()) {
      unique.push_back(name);
    } else {
      warnings.push_back("dataset: '" + name + "' is listed twice and counts once");
    }
  }
  ASSIGN_OR_RETURN(const std::vector<DatasetEntry> entries,
                   FindDatasets(config.data.dataset_dir, unique, warnings));
  for (const DatasetEntry& entry : entries) {
    ASSIGN_OR_RETURN(LoadedSet set, LoadSet(config, entry, random));
    sets.push_back(std::move(set));
  }
  return sets;
}

}  // namespace everstep
