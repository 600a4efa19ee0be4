// Damage of every kind, in every file: it is seen, named, and the next older checkpoint is taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/worker/checkpoint/checkpoint_fixture.h"
#include "worker/checkpoint/checkpoint_store.h"

namespace everstep {
namespace {

using testing::ContentOf;
using testing::FlipByte;
using ::testing::HasSubstr;
using testing::IsStateOf;
using testing::TempDir;
namespace fs = std::filesystem;

class CorruptionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CheckpointStore store(directory_.path());
    ASSERT_TRUE(store.TakeOver(1));
    for (const int64_t step : {10, 20}) ASSERT_TRUE(store.Write(ContentOf(step)));
    for (const auto& entry : fs::recursive_directory_iterator(newest())) {
      if (entry.is_regular_file()) {
        files_.push_back(fs::relative(entry.path(), newest()).string());
      }
    }
    ASSERT_EQ(files_.size(), 6u);
    fs::copy(newest(), backup(), fs::copy_options::recursive);
  }
  std::string newest() const { return directory_ / "checkpoint-20"; }
  std::string backup() const { return directory_ / "backup"; }
  void Restore() {
    fs::remove_all(newest());
    fs::copy(backup(), newest(), fs::copy_options::recursive);
  }
  // The newest is skipped for a reason that names `file`, and step 10 is found.
  void ExpectFallsBack(const std::string& file, const std::string& what) {
    const auto found = FindNewestCheckpoint(directory_.path());
    ASSERT_TRUE(found);
    ASSERT_TRUE(found->newest) << what;
    EXPECT_EQ(found->step, 10) << what;
    ASSERT_EQ(found->skipped.size(), 1u) << what;
    EXPECT_EQ(found->skipped[0].path, newest()) << what;
    EXPECT_THAT(found->skipped[0].reason, HasSubstr(file)) << what;
    EXPECT_FALSE(LoadCheckpoint(newest())) << what;
    const auto loaded = LoadCheckpoint(*found->newest);
    ASSERT_TRUE(loaded);
    EXPECT_TRUE(IsStateOf(*loaded, 10));
  }

  TempDir directory_;
  std::vector<std::string> files_;
};

TEST_F(CorruptionTest, AFlippedByteInEachFile) {
  std::mt19937 random(5);
  for (const std::string& file : files_) {
    const auto size = static_cast<int64_t>(fs::file_size(fs::path(newest()) / file));
    for (const int64_t at : {int64_t{0}, static_cast<int64_t>(random()) % size, size - 1}) {
      FlipByte((fs::path(newest()) / file).string(), at);
      ExpectFallsBack(file, file + " at " + std::to_string(at));
      Restore();
    }
  }
}

TEST_F(CorruptionTest, EachFileCutOrLonger) {
  for (const std::string& file : files_) {
    const fs::path path = fs::path(newest()) / file;
    const uintmax_t size = fs::file_size(path);
    for (const uintmax_t length : {uintmax_t{0}, size - 1, size + 1}) {
      fs::resize_file(path, length);
      ExpectFallsBack(file, file + " with " + std::to_string(length) + " bytes");
      Restore();
    }
  }
}

TEST_F(CorruptionTest, EachFileMissing) {
  for (const std::string& file : files_) {
    fs::remove(fs::path(newest()) / file);
    ExpectFallsBack(file, file + " removed");
    Restore();
  }
}

TEST_F(CorruptionTest, ACheckpointUnderAnotherName) {
  fs::rename(newest(), directory_ / "checkpoint-99");
  const auto found = FindNewestCheckpoint(directory_.path());
  ASSERT_TRUE(found && found->newest);
  EXPECT_EQ(found->step, 10);
  EXPECT_THAT(found->skipped.at(0).reason, HasSubstr("holds step 20"));
}

TEST_F(CorruptionTest, AFileWhereADirectoryShouldBe) {
  fs::remove_all(newest());
  std::ofstream(newest()) << "rubbish";
  const auto found = FindNewestCheckpoint(directory_.path());
  ASSERT_TRUE(found && found->newest);
  EXPECT_EQ(found->step, 10);
}

TEST_F(CorruptionTest, NoneIsLeft) {
  for (const char* name : {"checkpoint-10", "checkpoint-20"}) {
    FlipByte(directory_ / (std::string(name) + "/everstep/state.json"), 3);
  }
  const auto found = FindNewestCheckpoint(directory_.path());
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->newest);
  EXPECT_EQ(found->skipped.size(), 2u);
}

}  // namespace
}  // namespace everstep
