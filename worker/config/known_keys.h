// Every key that a LLaMA-Factory training file can have, and what Everstep does with it: one row
// each. docs/TRAINING_FILE.md shows the same rows (a test compares them).
#ifndef EVERSTEP_WORKER_CONFIG_KNOWN_KEYS_H_
#define EVERSTEP_WORKER_CONFIG_KNOWN_KEYS_H_

#include <span>
#include <string_view>
#include <vector>

namespace everstep {

enum class Support {
  kSupported,
  kNoEffect,  // accepted; a value other than the default gets a warning line with the note
  kRefused,   // a value other than null, false and the default is an error with the note
};

struct KnownKey {
  std::string_view name;
  Support support;
  std::string_view default_value;  // as one would write it in the file
  std::string_view note;           // what it does, or why not and what to do instead
};

// By topic, in the order in which the documentation shows them.
std::span<const KnownKey> ModelKeys();
std::span<const KnownKey> DataKeys();
std::span<const KnownKey> FinetuningKeys();
std::span<const KnownKey> MethodKeys();  // of training methods that are not done yet
std::span<const KnownKey> TrainingKeys();
std::span<const KnownKey> RuntimeKeys();  // of transformers' trainer, mostly without effect

const std::vector<KnownKey>& AllKnownKeys();
const KnownKey* FindKnownKey(std::string_view name);
const std::vector<std::string_view>& KnownKeyNames();

// A name that older releases used and the one that replaces it.
struct RenamedKey {
  std::string_view old_name;
  std::string_view new_name;
};
std::span<const RenamedKey> RenamedKeys();

// Why `value` of a supported `key` is refused, or "" when it is not.
std::string_view RefusedValueReason(std::string_view key, std::string_view value);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CONFIG_KNOWN_KEYS_H_
