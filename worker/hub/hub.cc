#include "worker/hub/hub.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <thread>
#include <vector>

#include "common/files.h"
#include "common/strings.h"
#include "worker/hub/blob_download.h"
#include "worker/hub/cache_layout.h"
#include "worker/hub/hub_client.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;
using Environment = std::function<std::optional<std::string>(const std::string&)>;

// The first of `names` that is set and not empty, else "".
std::string FirstOf(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto value = environment(name); value.has_value() && !value->empty()) return *value;
  }
  return "";
}

bool IsOn(std::string value) {
  for (char& c : value) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::string HfHome(const Environment& environment) {
  if (const std::string home = FirstOf(environment, {"HF_HOME"}); !home.empty()) return home;
  if (const std::string cache = FirstOf(environment, {"XDG_CACHE_HOME"}); !cache.empty()) {
    return cache + "/huggingface";
  }
  return FirstOf(environment, {"HOME"}) + "/.cache/huggingface";
}

std::string ReadToken(const Environment& environment, const std::string& home) {
  std::string token = FirstOf(environment, {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  if (token.empty()) {
    std::string path = FirstOf(environment, {"HF_TOKEN_PATH"});
    if (path.empty()) path = home + "/token";
    token = ReadFile(path).value_or("");
  }
  return std::string(Trim(token));
}

// "name" or "organization/name", as the hub allows it.
bool IsRepositoryName(const std::string& name) {
  constexpr size_t kMaxLength = 96;
  if (name.empty() || name.size() > kMaxLength || name.ends_with(".git")) return false;
  if (name.find("--") != std::string::npos || name.find("..") != std::string::npos) return false;
  if (std::count(name.begin(), name.end(), '/') > 1) return false;
  const auto is_end = [](char c) { return c == '/' || c == '.' || c == '-'; };
  if (is_end(name.front()) || is_end(name.back())) return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '-' || c == '_' || c == '/';
  });
}

std::optional<uint64_t> FreeBytes(const std::string& directory) {
  std::error_code error;
  const auto space = fs::space(directory, error);
  return error ? std::nullopt : std::optional<uint64_t>(space.available);
}

HubOptions WithDefaults(HubOptions options) {
  static const SystemClock clock;
  if (options.clock == nullptr) options.clock = &clock;
  if (!options.sleep) {
    options.sleep = [](Duration pause) { std::this_thread::sleep_for(pause); };
  }
  if (!options.free_bytes) options.free_bytes = FreeBytes;
  return options;
}

// The snapshot that the cache has for the revision, when it is whole.
std::optional<std::string> CachedSnapshot(const CacheLayout& cache, const std::string& revision) {
  const auto commit = cache.CachedCommit(revision);
  if (!commit.has_value() || !IsCompleteSnapshot(cache.Snapshot(*commit))) return std::nullopt;
  return cache.Snapshot(*commit);
}

Status CheckWeights(const std::string& name, const std::vector<std::string>& files) {
  const auto has = [&](std::string_view file) {
    return std::find(files.begin(), files.end(), file) != files.end();
  };
  if (has("adapter_config.json") && has(kAdapterWeights)) return {};
  if (!has("config.json")) {
    return NotFound("model '" + name +
                    "' has no config.json on the hub: name one in the "
                    "transformers format");
  }
  if (has(kWeights) || has(kWeightsIndex)) return {};
  return NotFound("model '" + name +
                  "' has no safetensors weights on the hub: name one that has, "
                  "or convert it");
}

// Downloads what is missing of the commit.
Status FetchSnapshot(const HubOptions& options, const CacheLayout& cache, const ModelInfo& info,
                     HubClient* client) {
  RETURN_IF_ERROR(cache.MakeFolders());
  const bool single = std::find(info.files.begin(), info.files.end(), kWeights) != info.files.end();
  std::vector<std::string> files;
  for (const std::string& file : info.files) {
    // As transformers does: one file with all weights wins over shards.
    if (IsNeededFile(file) && !(single && file == kWeightsIndex)) files.push_back(file);
  }
  const bool sharded = std::find(files.begin(), files.end(), kWeightsIndex) != files.end();
  if (sharded) {
    RETURN_IF_ERROR(FetchFile(options, cache, info.commit, kWeightsIndex, client));
    ASSIGN_OR_RETURN(const std::vector<std::string> shards,
                     ShardsOfIndex(cache.Snapshot(info.commit) + "/" + kWeightsIndex));
    files.insert(files.end(), shards.begin(), shards.end());
  }
  // Weights last: a snapshot with weights has everything else, even if this is interrupted.
  std::stable_partition(files.begin(), files.end(),
                        [](const std::string& file) { return !file.ends_with(".safetensors"); });
  std::error_code error;
  for (const std::string& file : files) {
    if (fs::exists(cache.Snapshot(info.commit) + "/" + file, error)) continue;
    RETURN_IF_ERROR(FetchFile(options, cache, info.commit, file, client));
  }
  return {};
}

Result<std::string> Download(const std::string& name, const HubOptions& options,
                             const CacheLayout& cache) {
  ASSIGN_OR_RETURN(HubClient client, HubClient::Create(options, name));
  auto info = client.GetModelInfo();
  if (!info.has_value()) {
    if (info.error().code != ErrorCode::kUnavailable) {
      return tl::unexpected<Error>(std::move(info).error());
    }
    // A hub that is away does not stop a job that has all it needs.
    if (const auto snapshot = CachedSnapshot(cache, options.revision)) {
      if (options.progress) {
        options.progress(info.error().message + "; using the copy in the cache: " + *snapshot);
      }
      return *snapshot;
    }
    return Unavailable("model '" + name + "' cannot be had: " + info.error().message +
                       ": check the network and HF_ENDPOINT, or set model_name_or_path to a "
                       "directory");
  }
  RETURN_IF_ERROR(CheckWeights(name, info->files));
  RETURN_IF_ERROR(FetchSnapshot(options, cache, *info, &client));
  if (!IsCommit(options.revision)) {
    RETURN_IF_ERROR(cache.WriteRef(options.revision, info->commit));
  }
  return cache.Snapshot(info->commit);
}

}  // namespace

HubOptions HubOptionsFromEnvironment(const Environment& environment,
                                     const HubOverrides& overrides) {
  HubOptions options;
  if (const std::string endpoint = FirstOf(environment, {"HF_ENDPOINT"}); !endpoint.empty()) {
    options.endpoint = endpoint;
  }
  const std::string home = HfHome(environment);
  options.token = overrides.token.empty() ? ReadToken(environment, home) : overrides.token;
  options.cache_dir = overrides.cache_dir;
  if (options.cache_dir.empty()) {
    options.cache_dir = FirstOf(environment, {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  }
  if (options.cache_dir.empty()) options.cache_dir = home + "/hub";
  if (!overrides.revision.empty()) options.revision = overrides.revision;
  options.offline = IsOn(FirstOf(environment, {"HF_HUB_OFFLINE"})) ||
                    IsOn(FirstOf(environment, {"TRANSFORMERS_OFFLINE"}));
  return options;
}

Result<std::string> ResolveModel(const std::string& name, const HubOptions& given) {
  std::error_code error;
  if (fs::is_directory(name, error)) return name;
  if (!IsRepositoryName(name)) {
    return NotFound("model_name_or_path: '" + name +
                    "' is no directory, and no name on the hub "
                    "(organization/name): check the path");
  }
  const HubOptions options = WithDefaults(given);
  if (!IsSafeRelativePath(options.revision)) {
    return InvalidArgument("model_revision: '" + options.revision + "' is no name of a revision");
  }
  const CacheLayout cache(options.cache_dir, name);
  const auto snapshot = CachedSnapshot(cache, options.revision);
  // A commit never changes; of a branch the cache may hold an older one.
  if (snapshot.has_value() && (options.offline || IsCommit(options.revision))) return *snapshot;
  if (options.offline) {
    return MakeError(ErrorCode::kFailedPrecondition,
                     "model '" + name + "' (revision " + options.revision + ") is not in " +
                         options.cache_dir +
                         ", and HF_HUB_OFFLINE forbids to download it: unset it, or set "
                         "model_name_or_path to a directory");
  }
  return Download(name, options, cache);
}

}  // namespace everstep
