#include "worker/config/training_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <regex>

#include "common/strings.h"
#include "worker/config/interpolation.h"

namespace everstep {
namespace {

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool IsOneOf(const std::string& text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

std::optional<Json> ResolveNumber(const std::string& text) {
  // OmegaConf's own pattern for floats, sexagesimal numbers left out.
  static const std::regex kFloat(
      R"([-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+|)"
      R"([-+]?\.[0-9_]+([eE][-+]?[0-9]+)?)");
  static const std::regex kInteger(R"([-+]?(0|[1-9][0-9_]*))");
  // A longer text is no number; it also bounds the regular expression's recursion.
  constexpr size_t kMaxNumberLength = 64;
  if (text.empty() || text.size() > kMaxNumberLength) return std::nullopt;
  const bool integer = std::regex_match(text, kInteger);
  if (!integer && !std::regex_match(text, kFloat)) return std::nullopt;
  std::string digits = text;
  std::erase(digits, '_');
  if (digits[0] == '+') digits.erase(0, 1);
  const char* end = digits.data() + digits.size();
  if (integer) {
    int64_t value = 0;
    if (std::from_chars(digits.data(), end, value).ec == std::errc()) return Json(value);
  }
  double value = 0;
  if (std::from_chars(digits.data(), end, value).ec == std::errc()) return Json(value);
  return std::nullopt;
}

// Turns the document's nodes into values; counts them, since aliases can multiply them.
class NodeReader {
 public:
  // What is wrong, or "" so far.
  const std::string& error() const { return error_; }

  Json Read(const YAML::Node& node, int depth) {
    if (++values_ > kMaxTrainingFileValues || depth > kMaxTrainingFileDepth) {
      error_ = "is too deep or too large to be a training file";
    }
    if (!error_.empty()) return nullptr;
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        return nullptr;
      case YAML::NodeType::Scalar:
        // yaml-cpp tags a quoted scalar "!" and a plain one "?".
        return node.Tag() == "!" ? Json(node.Scalar()) : ResolvePlainScalar(node.Scalar());
      case YAML::NodeType::Sequence: {
        Json list = Json::array();
        for (const YAML::Node& item : node) list.push_back(Read(item, depth + 1));
        return list;
      }
      case YAML::NodeType::Map: {
        Json object = Json::object();
        for (const auto& item : node) {
          if (!item.first.IsScalar()) continue;
          object[item.first.Scalar()] = Read(item.second, depth + 1);
        }
        return object;
      }
    }
    return nullptr;
  }

 private:
  int values_ = 0;
  std::string error_;
};

void AddEntry(const YAML::Node& key, const YAML::Node& node, NodeReader* reader,
              TrainingFile* file) {
  const int line = key.Mark().line + 1;
  if (!key.IsScalar()) {
    file->problems.push_back({line, "a key must be text"});
    return;
  }
  const std::string& name = key.Scalar();
  if (name == "<<") {
    file->problems.push_back({line, "merge keys (<<) are not read: write the keys out"});
    return;
  }
  if (const TrainingFileEntry* first = file->Find(name)) {
    file->problems.push_back({line, "key '" + name + "' is given twice (first in line " +
                                        std::to_string(first->line) + "): remove one"});
    return;
  }
  TrainingFileEntry entry{.key = name, .line = line, .value = reader->Read(node, 0), .written = ""};
  if (node.IsScalar()) entry.written = node.Scalar();
  file->entries.push_back(std::move(entry));
}

std::string AtLine(std::string_view source, int line) {
  return std::string(source) + ":" + std::to_string(line) + ": ";
}

// JSON allows tabs between its tokens, which yaml-cpp stumbles over; inside its strings there are
// none.
std::string PrepareText(std::string_view text) {
  std::string prepared(text);
  const std::string_view trimmed = Trim(text);
  if (trimmed.starts_with('{')) std::replace(prepared.begin(), prepared.end(), '\t', ' ');
  return prepared;
}

}  // namespace

const TrainingFileEntry* TrainingFile::Find(std::string_view key) const {
  const auto it = std::find_if(entries.begin(), entries.end(),
                               [&](const TrainingFileEntry& entry) { return entry.key == key; });
  return it == entries.end() ? nullptr : &*it;
}

Json ResolvePlainScalar(const std::string& text) {
  if (text.empty() || IsOneOf(text, {"~", "null", "Null", "NULL"})) return nullptr;
  if (auto number = ResolveNumber(text)) return *number;
  const std::string lower = Lower(text);
  if (IsOneOf(lower, {"true", "yes", "on"})) return true;
  if (IsOneOf(lower, {"false", "no", "off"})) return false;
  return text;
}

Result<TrainingFile> ReadTrainingFile(const YAML::Node& mapping, std::string_view source,
                                      const EnvironmentLookup& environment) {
  const std::string name(source);
  if (!mapping.IsDefined() || mapping.IsNull()) {
    return InvalidArgument(name +
                           ": is empty: a training file needs at least model_name_or_path, "
                           "dataset and do_train");
  }
  const int first_line = mapping.Mark().line + 1;
  if (!mapping.IsMap()) {
    return InvalidArgument(AtLine(source, first_line) +
                           "a training file is a list of 'key: value' lines");
  }
  TrainingFile file;
  NodeReader reader;
  for (const auto& item : mapping) AddEntry(item.first, item.second, &reader, &file);
  if (!reader.error().empty()) return InvalidArgument(name + ": " + reader.error());
  Interpolate(&file, environment);
  return file;
}

Result<TrainingFile> ReadTrainingFile(std::string_view text, std::string_view source,
                                      const EnvironmentLookup& environment) {
  if (text.size() > kMaxTrainingFileBytes) {
    return InvalidArgument(std::string(source) + ": has " + FormatBytes(text.size()) +
                           ", too large to be a training file");
  }
  // yaml-cpp reports by exception; it ends here.
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(PrepareText(text));
    if (documents.size() > 1) {
      return InvalidArgument(AtLine(source, documents[1].Mark().line + 1) +
                             "a second document ('---'): a training file is one document");
    }
    return ReadTrainingFile(documents.empty() ? YAML::Node() : documents[0], source, environment);
  } catch (const YAML::Exception& e) {
    return InvalidArgument(AtLine(source, e.mark.line + 1) + "malformed YAML: " + e.msg);
  }
}

std::string FormatProblems(std::vector<Problem> problems, std::string_view source) {
  std::stable_sort(problems.begin(), problems.end(), [](const Problem& a, const Problem& b) {
    if ((a.line == 0) != (b.line == 0)) return b.line == 0;
    return a.line < b.line;
  });
  std::vector<std::string> lines;
  for (const Problem& problem : problems) {
    lines.push_back(problem.line == 0 ? std::string(source) + ": " + problem.text
                                      : AtLine(source, problem.line) + problem.text);
  }
  return Join(lines, "\n");
}

}  // namespace everstep
