// Models from a Hugging Face hub, kept in the cache that huggingface_hub uses too.
#ifndef EVERSTEP_WORKER_HUB_HUB_H_
#define EVERSTEP_WORKER_HUB_HUB_H_

#include <functional>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/result.h"

namespace everstep {

struct HubOptions {
  std::string endpoint = "https://huggingface.co";  // http:// or https://
  std::string token;                                // "" = without
  std::string cache_dir;                            // the folder with models--*/
  std::string revision = "main";                    // branch, tag or commit
  bool offline = false;                             // the cache alone

  // Lines for people: what is being downloaded, how far, what is tried again.
  std::function<void(const std::string& line)> progress;

  std::chrono::milliseconds connect_timeout{10000};
  std::chrono::milliseconds silence_timeout{60000};
  // Attempts in a row that bring nothing new; a download that gets further starts counting anew.
  int max_attempts = 5;
  Duration first_backoff = std::chrono::milliseconds(500);  // doubles up to kMaxBackoff
  Duration lock_stall_timeout = std::chrono::minutes(10);
  Duration lock_poll_interval = std::chrono::milliseconds(50);

  // What tests replace.
  const Clock* clock = nullptr;         // null = the system's
  std::function<void(Duration)> sleep;  // empty = the thread sleeps
  std::function<std::optional<uint64_t>(const std::string& directory)> free_bytes;
};

inline constexpr Duration kMaxBackoff = std::chrono::seconds(60);
// In all, for one file: a server that drops every connection after a few bytes ends here.
inline constexpr int kMaxTotalAttempts = 200;
inline constexpr int kMaxRedirects = 10;

// Options as huggingface_hub reads them: HF_ENDPOINT, HF_TOKEN (or the file HF_TOKEN_PATH, by
// default token in HF_HOME), HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE, HF_HUB_CACHE or
// HUGGINGFACE_HUB_CACHE, else hub in HF_HOME, else in XDG_CACHE_HOME/huggingface or
// ~/.cache/huggingface. `cache_dir`, `token` and `revision` are the training file's and win when
// not empty.
struct HubOverrides {
  std::string cache_dir = "";
  std::string token = "";
  std::string revision = "";
};
HubOptions HubOptionsFromEnvironment(
    const std::function<std::optional<std::string>(const std::string&)>& environment,
    const HubOverrides& overrides);

// The directory of `name`: itself when it is one, else the model's snapshot in the cache, after
// whatever of it was missing has been downloaded: configuration, tokenizer, and weights (or an
// adapter) as safetensors. Interrupted downloads are taken up where they stopped; every file is
// checked by size and checksum before it counts. Any number of threads and processes may call this
// for the same model: one downloads a file, the others wait for it.
//
// Errors are one line with a remedy: kNotFound (no such directory, model, revision or file),
// kFailedPrecondition (gated, token refused, offline and not cached, cache not writable),
// kUnavailable (the hub cannot be reached), kDataLoss (checksum), kResourceExhausted (disk full).
Result<std::string> ResolveModel(const std::string& name, const HubOptions& options);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_HUB_HUB_H_
