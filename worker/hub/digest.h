// The checksums by which a hub names its files.
#ifndef EVERSTEP_WORKER_HUB_DIGEST_H_
#define EVERSTEP_WORKER_HUB_DIGEST_H_

#include <string>

#include "common/result.h"

namespace everstep {

// Lower-case hex digits.
Result<std::string> FileSha256(const std::string& path);
// What Git names a file's content: SHA-1 of "blob <size>\0" and the content.
Result<std::string> FileGitBlobSha1(const std::string& path);

// Checks the file against `etag`: 64 hex digits are the SHA-256 of a large (LFS) file, 40 the Git
// blob of a small one; another kind of tag says nothing about the content. kDataLoss when they
// differ.
Status CheckDigest(const std::string& path, const std::string& etag);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_HUB_DIGEST_H_
