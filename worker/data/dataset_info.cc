#include "worker/data/dataset_info.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "common/files.h"
#include "common/json.h"
#include "common/strings.h"

namespace everstep {
namespace {

constexpr std::array<std::string_view, 19> kEntryKeys = {
    "file_name",   "formatting",      "ranking",    "subset",
    "split",       "folder",          "columns",    "tags",
    "num_samples", "hf_hub_url",      "ms_hub_url", "om_hub_url",
    "script_url",  "cloud_file_name", "file_sha1",  "license",
    "description", "homepage",        "size"};
constexpr std::array<std::string_view, 13> kColumnKeys = {
    "prompt", "query",  "response", "history", "messages", "system", "tools",
    "images", "videos", "audios",   "chosen",  "rejected", "kto_tag"};
constexpr std::array<std::string_view, 7> kTagKeys = {
    "role_tag",        "content_tag",  "user_tag",  "assistant_tag",
    "observation_tag", "function_tag", "system_tag"};

// Reads one entry; `where` starts its messages: "data/dataset_info.json: 'my_data'".
class EntryReader {
 public:
  EntryReader(std::string where, const OrderedJson& entry, std::vector<std::string>& warnings)
      : where_(std::move(where)), entry_(entry), warnings_(warnings) {}

  Result<DatasetEntry> Read(const std::string& name, const std::string& dataset_dir) {
    DatasetEntry entry;
    entry.name = name;
    if (!entry_.is_object()) return Wrong("must be an object with 'file_name'");
    RETURN_IF_ERROR(CheckKeys(entry_, kEntryKeys, ""));
    RETURN_IF_ERROR(CheckSource());
    entry.path = (std::filesystem::path(dataset_dir) / Text(entry_, "file_name")).string();
    RETURN_IF_ERROR(ReadFormatting(entry));
    RETURN_IF_ERROR(ReadColumns(entry.columns));
    RETURN_IF_ERROR(ReadTags(entry.tags));
    if (const auto it = entry_.find("num_samples"); it != entry_.end() && !it->is_null()) {
      if (!it->is_number_integer() || it->get<int64_t>() < 1) {
        return Wrong("'num_samples' must be a whole number above 0");
      }
      entry.num_samples = it->get<int64_t>();
    }
    return entry;
  }

 private:
  tl::unexpected<Error> Wrong(const std::string& what) const {
    return InvalidArgument(where_ + ": " + what);
  }

  static std::string Text(const OrderedJson& object, std::string_view key) {
    const auto it = object.find(std::string(key));
    return it != object.end() && it->is_string() ? it->get<std::string>() : "";
  }

  // One that is close to a known key is a slip, others have no effect.
  Status CheckKeys(const OrderedJson& object, std::span<const std::string_view> known,
                   const std::string& inside) {
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string unknown = "unknown key '" + key + "'" + inside;
      const std::string near = DidYouMean(key, known);
      if (!near.empty()) return Wrong(unknown + near);
      warnings_.push_back(where_ + ": " + unknown + "; it has no effect");
    }
    return {};
  }

  Status CheckSource() const {
    for (const char* key :
         {"hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name"}) {
      if (!entry_.contains(key)) continue;
      return Wrong(std::string("'") + key +
                   "' is not supported; download the data as json, jsonl, csv or txt into "
                   "dataset_dir and give its 'file_name'");
    }
    if (Text(entry_, "file_name").empty()) {
      return Wrong("'file_name' is missing; give the name of a file or folder in dataset_dir");
    }
    const std::string split = Text(entry_, "split");
    if (!split.empty() && split != "train") {
      return Wrong("split '" + split +
                   "' is not supported for files; remove 'split', and limit "
                   "the examples with 'num_samples' or 'max_samples'");
    }
    if (entry_.contains("ranking") && entry_["ranking"] == true) {
      return Wrong(
          "is a data set of preferences (ranking: true), which the stages pt and sft "
          "cannot use; choose another data set");
    }
    return {};
  }

  Status ReadFormatting(DatasetEntry& entry) const {
    constexpr std::array<std::string_view, 3> kFormats = {"alpaca", "sharegpt", "openai"};
    const std::string name = entry_.contains("formatting") ? Text(entry_, "formatting") : "alpaca";
    const auto found = std::find(kFormats.begin(), kFormats.end(), name);
    if (found == kFormats.end()) {
      return Wrong("unknown formatting '" + name + "'" + DidYouMean(name, kFormats) +
                   "; known: alpaca, sharegpt, openai");
    }
    entry.formatting = static_cast<Formatting>(found - kFormats.begin());
    return {};
  }

  Status ReadColumns(DatasetColumns& columns) {
    if (!entry_.contains("columns")) return {};
    const OrderedJson& given = entry_["columns"];
    if (!given.is_object()) return Wrong("'columns' must be an object");
    RETURN_IF_ERROR(CheckKeys(given, kColumnKeys, " in 'columns'"));
    columns.given = true;
    columns.prompt = Text(given, "prompt");
    columns.query = Text(given, "query");
    columns.response = Text(given, "response");
    columns.history = Text(given, "history");
    columns.messages = Text(given, "messages");
    columns.system = Text(given, "system");
    columns.tools = Text(given, "tools");
    columns.images = Text(given, "images");
    columns.videos = Text(given, "videos");
    columns.audios = Text(given, "audios");
    return {};
  }

  Status ReadTags(DatasetTags& tags) {
    if (!entry_.contains("tags")) return {};
    const OrderedJson& given = entry_["tags"];
    if (!given.is_object()) return Wrong("'tags' must be an object");
    RETURN_IF_ERROR(CheckKeys(given, kTagKeys, " in 'tags'"));
    tags.role = Text(given, "role_tag");
    tags.content = Text(given, "content_tag");
    tags.user = Text(given, "user_tag");
    tags.assistant = Text(given, "assistant_tag");
    tags.observation = Text(given, "observation_tag");
    tags.function = Text(given, "function_tag");
    tags.system = Text(given, "system_tag");
    for (const auto& [key, value] :
         {std::pair("role_tag", &tags.role), std::pair("content_tag", &tags.content)}) {
      if (value->empty()) {
        return Wrong(std::string("'tags' lacks '") + key +
                     "' (tags that are not listed have no value); add it");
      }
    }
    return {};
  }

  std::string where_;
  const OrderedJson& entry_;
  std::vector<std::string>& warnings_;
};

Result<OrderedJson> ReadInfo(const std::string& dataset_dir, const std::string& path) {
  if (dataset_dir == "ONLINE" || dataset_dir.starts_with("REMOTE:")) {
    return InvalidArgument("dataset_dir: '" + dataset_dir +
                           "' is not supported; download the data sets and name their folder");
  }
  if (!std::filesystem::is_directory(dataset_dir)) {
    return NotFound("dataset_dir: there is no folder '" + dataset_dir +
                    "'; name the folder that holds dataset_info.json");
  }
  if (!std::filesystem::exists(path)) {
    return NotFound(path +
                    ": missing; it describes the data sets: {\"my_data\": {\"file_name\": "
                    "\"my_data.json\"}}");
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(OrderedJson info, ParseOrderedJson(text, path));
  if (!info.is_object()) return InvalidArgument(path + ": must be an object of data sets");
  return info;
}

}  // namespace

Result<std::vector<DatasetEntry>> FindDatasets(const std::string& dataset_dir,
                                               std::span<const std::string> names,
                                               std::vector<std::string>& warnings) {
  const std::string path = dataset_dir + "/dataset_info.json";
  ASSIGN_OR_RETURN(const OrderedJson info, ReadInfo(dataset_dir, path));
  std::vector<DatasetEntry> entries;
  for (const std::string& name : names) {
    if (!info.contains(name)) {
      std::vector<std::string> known;
      for (const auto& [key, value] : info.items()) known.push_back(key);
      const std::vector<std::string_view> views(known.begin(), known.end());
      return NotFound("dataset: '" + name + "' is not in " + path + DidYouMean(name, views) +
                      "; there are: " + Join(known, ", "));
    }
    EntryReader reader(path + ": '" + name + "'", info[name], warnings);
    ASSIGN_OR_RETURN(DatasetEntry entry, reader.Read(name, dataset_dir));
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace everstep
