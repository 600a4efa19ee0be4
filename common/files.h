// Small whole-file operations with errors as values. The one place where common touches the disk.
#ifndef EVERSTEP_COMMON_FILES_H_
#define EVERSTEP_COMMON_FILES_H_

#include <string>
#include <string_view>

#include "common/result.h"

namespace everstep {

Result<std::string> ReadFile(const std::string& path);

// Replaces `path` in one step: readers see the old or the new content, never a part; the new
// content is on the disk when this returns. Leaves no temporary file behind on an error.
Status WriteFileAtomically(const std::string& path, std::string_view content);

// Makes the entries of `directory` (creations, renames) durable.
Status SyncDirectory(const std::string& directory);

// mkdir -p.
Status MakeDirectories(const std::string& path);

}  // namespace everstep

#endif  // EVERSTEP_COMMON_FILES_H_
