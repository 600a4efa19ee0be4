// docs/TRAINING_FILE.md says of every key what the code does with it.
#include <gtest/gtest.h>

#include <set>

#include "common/files.h"
#include "common/strings.h"
#include "worker/config/known_keys.h"

namespace everstep {
namespace {

std::string SupportText(Support support) {
  switch (support) {
    case Support::kSupported:
      return "supported";
    case Support::kNoEffect:
      return "no effect";
    case Support::kRefused:
      return "refused";
  }
  return "";
}

std::string RowOf(const KnownKey& key) {
  return "| `" + std::string(key.name) + "` | " + std::string(key.default_value) + " | " +
         SupportText(key.support) + " | " + std::string(key.note) + " |";
}

TEST(TrainingFileDocTest, HasARowForEveryKeyAndNoOther) {
  const std::string text =
      ReadFile(std::string(EVERSTEP_SOURCE_DIR) + "/docs/TRAINING_FILE.md").value();
  const std::string rows = text.substr(text.find("## Every key"));
  std::set<std::string> documented;
  for (const std::string& line : SplitAndTrim(rows, '\n')) {
    if (line.starts_with("| `")) documented.insert(line);
  }

  std::set<std::string> expected;
  for (const KnownKey& key : AllKnownKeys()) expected.insert(RowOf(key));

  for (const std::string& row : expected)
    EXPECT_TRUE(documented.contains(row)) << "missing: " << row;
  for (const std::string& row : documented) EXPECT_TRUE(expected.contains(row)) << "stale: " << row;
}

TEST(KnownKeysTest, EveryKeyIsThereOnceWithANote) {
  std::set<std::string_view> names;
  for (const KnownKey& key : AllKnownKeys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.note.empty()) << key.name;
  }
  EXPECT_GT(names.size(), 390u);
}

}  // namespace
}  // namespace everstep
