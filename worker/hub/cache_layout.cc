#include "worker/hub/cache_layout.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <set>

#include "common/files.h"
#include "common/json.h"
#include "common/strings.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNeeded[] = {"config.json",         "generation_config.json",
                                        "tokenizer.json",      "tokenizer_config.json",
                                        "tokenizer.model",     "special_tokens_map.json",
                                        "added_tokens.json",   "vocab.json",
                                        "vocab.txt",           "merges.txt",
                                        "chat_template.jinja", "chat_template.json",
                                        "adapter_config.json", kWeights,
                                        kWeightsIndex,         kAdapterWeights};

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

CacheLayout::CacheLayout(std::string cache_dir, std::string_view repository) {
  std::string name = "models--";
  for (const char c : repository) {
    if (c == '/') {
      name += "--";
    } else {
      name += c;
    }
  }
  folder_ = cache_dir + "/" + name;
  locks_ = cache_dir + "/.locks/" + name;
}

Status CacheLayout::MakeFolders() const {
  for (const std::string& folder : {folder_ + "/blobs", folder_ + "/refs", locks_}) {
    RETURN_IF_ERROR(MakeDirectories(folder));
  }
  return {};
}

Status CacheLayout::Link(const std::string& commit, const std::string& file,
                         const std::string& etag) const {
  const fs::path link = fs::path(Snapshot(commit)) / file;
  RETURN_IF_ERROR(MakeDirectories(link.parent_path().string()));
  fs::path target = "../../blobs/" + etag;
  for (auto depth = std::count(file.begin(), file.end(), '/'); depth > 0; --depth) {
    target = ".." / target;
  }
  std::error_code error;
  if (fs::is_symlink(link, error) && fs::read_symlink(link, error) == target) return {};
  // Several processes do this at once; a rename lets none of them see a half.
  std::random_device random;
  const fs::path temporary =
      link.string() + ".tmp" + std::to_string(random()) + "." + std::to_string(random());
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, link, error);
  if (!error) return {};
  const std::string reason = error.message();
  fs::remove(temporary, error);
  // Another one may have come first.
  if (fs::is_symlink(link, error)) return {};
  return MakeError(ErrorCode::kFailedPrecondition,
                   link.string() + ": cannot be made: " + reason +
                       ": set cache_dir or HF_HOME to a directory on a file system with symbolic "
                       "links");
}

Status CacheLayout::WriteRef(const std::string& revision, const std::string& commit) const {
  const fs::path path = fs::path(folder_) / "refs" / revision;
  RETURN_IF_ERROR(MakeDirectories(path.parent_path().string()));
  return WriteFileAtomically(path.string(), commit);
}

std::optional<std::string> CacheLayout::CachedCommit(const std::string& revision) const {
  if (IsCommit(revision)) return revision;
  const auto text = ReadFile(folder_ + "/refs/" + revision);
  if (!text.has_value()) return std::nullopt;
  const std::string commit(Trim(*text));
  return IsCommit(commit) ? std::optional<std::string>(commit) : std::nullopt;
}

bool IsCommit(std::string_view text) {
  constexpr size_t kDigits = 40;
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

bool IsSafeRelativePath(std::string_view path) {
  if (path.empty() || path.starts_with('/')) return false;
  const auto is_control = [](unsigned char c) { return c < ' ' || c == '\\'; };
  if (std::any_of(path.begin(), path.end(), is_control)) return false;
  for (const fs::path& part : fs::path(path)) {
    if (part == ".." || part == "." || part.empty()) return false;
  }
  return true;
}

bool IsNeededFile(std::string_view file) {
  return std::find(std::begin(kNeeded), std::end(kNeeded), file) != std::end(kNeeded);
}

Result<std::vector<std::string>> ShardsOfIndex(const std::string& index_path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(index_path));
  ASSIGN_OR_RETURN(const Json index, ParseJson(text, index_path));
  const auto bad = [&](const std::string& what) { return DataLoss(index_path + ": " + what); };
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return bad("has no weight_map");
  }
  std::set<std::string> shards;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() || !IsSafeRelativePath(file.get<std::string>())) {
      return bad("weight_map: '" + tensor + "' is in no file of this folder");
    }
    shards.insert(file.get<std::string>());
  }
  if (shards.empty()) return bad("its weight_map is empty");
  return std::vector<std::string>(shards.begin(), shards.end());
}

bool IsCompleteSnapshot(const std::string& directory) {
  const std::string folder = directory + "/";
  if (Exists(folder + "adapter_config.json") && Exists(folder + kAdapterWeights)) return true;
  if (!Exists(folder + "config.json")) return false;
  if (Exists(folder + kWeights)) return true;
  if (!Exists(folder + kWeightsIndex)) return false;
  const auto shards = ShardsOfIndex(folder + kWeightsIndex);
  return shards.has_value() && std::all_of(shards->begin(), shards->end(), [&](const auto& shard) {
           return Exists(folder + shard);
         });
}

}  // namespace everstep
