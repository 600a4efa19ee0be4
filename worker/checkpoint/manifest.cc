#include "worker/checkpoint/manifest.h"

#include "worker/checkpoint/file_writer.h"

namespace everstep {
namespace {

constexpr std::string_view kSeal = ",\n  \"checksum\": \"";
constexpr std::string_view kEnd = "\"\n}\n";

tl::unexpected<Error> Damaged(std::string_view source) {
  return DataLoss(std::string(source) + ": the manifest is damaged");
}

// A relative path that stays inside the directory.
bool StaysInside(const std::string& path) {
  return !path.empty() && path.front() != '/' &&
         ("/" + path + "/").find("/../") == std::string::npos;
}

}  // namespace

std::string Manifest::Serialize() const {
  OrderedJson json;
  json["version"] = kManifestVersion;
  json["step"] = step;
  json["generation"] = generation;
  json["logical_world"] = logical_world;
  json["resumable"] = resumable;
  json["layout"] = layout;
  json["files"] = OrderedJson::array();
  for (const ManifestFile& file : files) {
    json["files"].push_back(
        OrderedJson{{"path", file.path}, {"bytes", file.bytes}, {"checksum", file.checksum}});
  }
  std::string text = DumpJson(json, 2);
  text.resize(text.rfind("\n}"));
  return text + std::string(kSeal) + ChecksumOf(text) + std::string(kEnd);
}

Result<Manifest> Manifest::Parse(std::string_view text, std::string_view source) {
  const size_t seal = text.rfind(kSeal);
  if (seal == std::string_view::npos) return Damaged(source);
  const std::string_view sealed = text.substr(0, seal);
  const std::string checksum = ChecksumOf(sealed);
  if (text.substr(seal) != std::string(kSeal) + checksum + std::string(kEnd)) {
    return Damaged(source);
  }
  auto json = ParseJson(text, source);
  if (!json || !json->is_object()) return Damaged(source);
  const int version = JsonValue<int>(*json, "version", 0);
  if (version != kManifestVersion) {
    return MakeError(ErrorCode::kFailedPrecondition,
                     std::string(source) + ": version " + std::to_string(version) +
                         " of the format is not known here (this is " +
                         std::to_string(kManifestVersion) + "): use the release that wrote it");
  }
  Manifest manifest;
  manifest.step = JsonValue<int64_t>(*json, "step", -1);
  manifest.generation = JsonValue<uint64_t>(*json, "generation", 0);
  manifest.logical_world = JsonValue<int>(*json, "logical_world", 0);
  manifest.resumable = JsonValue<bool>(*json, "resumable", false);
  manifest.layout = json->value("layout", Json::array());
  for (const Json& entry : json->value("files", Json::array())) {
    ManifestFile file{JsonValue<std::string>(entry, "path", ""),
                      JsonValue<uint64_t>(entry, "bytes", 0),
                      JsonValue<std::string>(entry, "checksum", "")};
    if (!StaysInside(file.path)) return Damaged(source);
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

}  // namespace everstep
