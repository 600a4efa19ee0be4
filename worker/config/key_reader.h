// Typed access to the keys of a training file. Every problem is recorded, none stops the reading;
// a value with a problem, an absent key and `null` leave the target as it is.
#ifndef EVERSTEP_WORKER_CONFIG_KEY_READER_H_
#define EVERSTEP_WORKER_CONFIG_KEY_READER_H_

#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/config/training_file.h"

namespace everstep {

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool excludes_min = false;
  bool excludes_max = false;
};
inline constexpr Range kAny{};
inline constexpr Range kAtLeastZero{.min = 0};
inline constexpr Range kAtLeastOne{.min = 1};
inline constexpr Range kAboveZero{.min = 0, .excludes_min = true};
inline constexpr Range kShare{.min = 0, .max = 1};
inline constexpr Range kBelowOne{.min = 0, .max = 1, .excludes_max = true};

class KeyReader {
 public:
  // `file` and `problems` outlive the reader.
  KeyReader(const TrainingFile& file, std::vector<Problem>* problems);

  void Bool(std::string_view key, bool* target);
  void Bool(std::string_view key, std::optional<bool>* target);
  void Integer(std::string_view key, Range range, int64_t* target);
  void Integer(std::string_view key, Range range, std::optional<int64_t>* target);
  void Number(std::string_view key, Range range, double* target);
  void Number(std::string_view key, Range range, std::optional<double>* target);
  void Text(std::string_view key, std::string* target);
  // A list, or one text with commas; empty parts are dropped.
  void TextList(std::string_view key, std::vector<std::string>* target);
  void NumberList(std::string_view key, Range range, std::vector<double>* target);
  // A mapping, or JSON text of one.
  void Object(std::string_view key, Json* target);
  // One of `words`; false when nothing was read. A word with a RefusedValueReason fails with it.
  bool Word(std::string_view key, const std::vector<std::string_view>& words, std::string* target);
  // The value for one of `choices`; the words `no` and `off` reach us as false, and count as their
  // word.
  template <typename T>
  void Choice(std::string_view key, std::initializer_list<std::pair<std::string_view, T>> choices,
              T* target) {
    std::string word;
    std::vector<std::string_view> words;
    for (const auto& choice : choices) words.push_back(choice.first);
    if (!Word(key, words, &word)) return;
    for (const auto& choice : choices) {
      if (choice.first == word) *target = choice.second;
    }
  }

  // The key is in the file with a value other than null.
  bool Given(std::string_view key) const;
  bool GivenAsNull(std::string_view key) const;
  void Fail(std::string_view key, std::string_view text);
  bool Failed(std::string_view key) const { return failed_.contains(std::string(key)); }
  // All keys that were asked for.
  const std::set<std::string, std::less<>>& seen() const { return seen_; }

 private:
  // The entry when it has a value; marks the key as seen.
  const TrainingFileEntry* Value(std::string_view key);
  std::optional<double> ToNumber(const TrainingFileEntry& entry, const Json& value, Range range);

  const TrainingFile& file_;
  std::vector<Problem>* problems_;
  std::set<std::string, std::less<>> seen_;
  std::set<std::string, std::less<>> failed_;
};

// "0.1", "1e-08", "8": as short as possible.
std::string FormatNumber(double value);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CONFIG_KEY_READER_H_
