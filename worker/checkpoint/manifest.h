// everstep/manifest.json: the list of a checkpoint's files with sizes and checksums. It is written
// last; a directory without a manifest that verifies is no checkpoint of ours.
#ifndef EVERSTEP_WORKER_CHECKPOINT_MANIFEST_H_
#define EVERSTEP_WORKER_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace everstep {

inline constexpr char kManifestFile[] = "everstep/manifest.json";
inline constexpr int kManifestVersion = 1;

struct ManifestFile {
  std::string path;  // relative to the checkpoint directory
  uint64_t bytes = 0;
  std::string checksum;  // "xxh3_128:" and 32 hexadecimal digits

  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  int64_t step = 0;
  uint64_t generation = 0;
  int logical_world = 1;
  bool resumable = false;
  Json layout = Json::array();      // [{"name": ..., "shape": [...]}] of the trained parameters
  std::vector<ManifestFile> files;  // without the manifest itself

  // The file's text; its last member is the checksum of all text before it.
  std::string Serialize() const;
  // kDataLoss when any byte differs from what Serialize wrote, kFailedPrecondition for a newer
  // version of the format. `source` starts the message.
  static Result<Manifest> Parse(std::string_view text, std::string_view source);

  bool operator==(const Manifest&) const = default;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_MANIFEST_H_
