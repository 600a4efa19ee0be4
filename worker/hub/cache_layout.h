// The folders in which huggingface_hub keeps what it has downloaded, so that either finds the
// other's files:
//
//   <cache>/models--<org>--<name>/refs/<revision>              the commit it pointed to
//                                /blobs/<etag>                 a file's content
//                                /snapshots/<commit>/<file> -> ../../blobs/<etag>
//   <cache>/.locks/models--<org>--<name>/<etag>.lock
#ifndef EVERSTEP_WORKER_HUB_CACHE_LAYOUT_H_
#define EVERSTEP_WORKER_HUB_CACHE_LAYOUT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace everstep {

class CacheLayout {
 public:
  CacheLayout(std::string cache_dir, std::string_view repository);

  std::string Snapshot(const std::string& commit) const { return folder_ + "/snapshots/" + commit; }
  std::string Blob(const std::string& etag) const { return folder_ + "/blobs/" + etag; }
  std::string Incomplete(const std::string& etag) const { return Blob(etag) + ".incomplete"; }
  std::string LockFile(const std::string& etag) const { return locks_ + "/" + etag + ".lock"; }

  Status MakeFolders() const;
  // Makes snapshots/<commit>/<file> point to the blob; does nothing where it does already.
  Status Link(const std::string& commit, const std::string& file, const std::string& etag) const;
  Status WriteRef(const std::string& revision, const std::string& commit) const;
  // The commit of `revision` as far as the cache knows it: itself when it is a commit.
  std::optional<std::string> CachedCommit(const std::string& revision) const;

 private:
  std::string folder_;
  std::string locks_;
};

// 40 lower-case hex digits.
bool IsCommit(std::string_view text);

// A relative path that stays below its folder.
bool IsSafeRelativePath(std::string_view path);

// Which files of a repository are needed for training: configuration, tokenizer, and the weights
// (or the adapter) in safetensors. The shards of an index are named by the index alone.
bool IsNeededFile(std::string_view file);
inline constexpr char kWeightsIndex[] = "model.safetensors.index.json";
inline constexpr char kWeights[] = "model.safetensors";
inline constexpr char kAdapterWeights[] = "adapter_model.safetensors";

// The shard files that an index names, each once; kDataLoss when it is malformed.
Result<std::vector<std::string>> ShardsOfIndex(const std::string& index_path);

// A snapshot with a configuration and all of its weights.
bool IsCompleteSnapshot(const std::string& directory);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_HUB_CACHE_LAYOUT_H_
