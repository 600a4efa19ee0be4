// The rules for the directory that a run writes to, checked before anything is trained.
#ifndef EVERSTEP_WORKER_OUTPUT_DIRECTORY_H_
#define EVERSTEP_WORKER_OUTPUT_DIRECTORY_H_

#include <string>

#include "common/result.h"

namespace everstep {

// `output_dir` of the training file as an absolute path: a relative one lies under the job's
// checkpoint volume (or the working directory when there is none).
std::string ResolveOutputDirectory(const std::string& output_dir,
                                   const std::string& checkpoint_path);

struct OutputDirectoryRules {
  bool overwrite = false;     // overwrite_output_dir
  bool first_start = true;    // the job's first start: a restart never minds what it finds
  bool resumes_from = false;  // resume_from_checkpoint is given
};

// Creates the directory if need be. Errors name it and the remedy: a file is in its place, it
// cannot be written, it holds files but no checkpoint and overwriting is off.
Status PrepareOutputDirectory(const std::string& directory, const OutputDirectoryRules& rules);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_OUTPUT_DIRECTORY_H_
