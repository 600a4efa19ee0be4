// Writing a set of files below a directory: each one synced and hashed.
#ifndef EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_WRITER_H_
#define EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/manifest.h"

namespace everstep {

// Bytes that the files will take on the disk, with a block per file on top. kNotFound for a copied
// file that does not exist.
Result<uint64_t> BytesNeeded(const FileSet& files);

// The files of a checkpoint with everstep/state.json and everstep/optimizer.safetensors. Views
// into `content`.
FileSet AllFiles(const CheckpointContent& content);
Manifest ManifestOf(const CheckpointContent& content, uint64_t generation);

struct WrittenFiles {
  std::vector<ManifestFile> files;
  uint64_t bytes = 0;
};
// Where a file of the set is written to; "path in the set" -> path on the disk.
using PathOf = std::function<std::string(const std::string& path)>;

// Writes all files, making directories as needed, and syncs files and directories. On an error
// `written` says how far it came; what is there is for the caller to remove.
Status WriteFiles(const FileSet& files, const PathOf& path_of, WrittenFiles* written);

// Writes the files below `directory` (new, or empty), then the manifest.
Status WriteCheckpointFiles(const std::string& directory, const CheckpointContent& content,
                            uint64_t generation, uint64_t* written_bytes);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_CHECKPOINT_WRITER_H_
