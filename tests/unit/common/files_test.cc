#include "common/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/support/small_disk.h"
#include "tests/support/temp_dir.h"

namespace everstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

namespace fs = std::filesystem;

class FilesTest : public testing::Test {
 protected:
  static void Write(const std::string& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
  }
  // Names of what is in the directory.
  std::vector<std::string> Entries() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  TempDir directory_;
};

TEST_F(FilesTest, ReadsEveryByte) {
  std::string content("a\0b\r\n\xff", 6);
  for (int i = 0; i < 20000; ++i) content += "more than a part at once\n";
  Write(directory_ / "file", content);
  const auto read = ReadFile(directory_ / "file");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(*read, content);

  Write(directory_ / "empty", "");
  EXPECT_EQ(ReadFile(directory_ / "empty").value_or("?"), "");
  // The kernel's files say that they are 0 bytes long.
  EXPECT_NE(ReadFile("/proc/self/status").value_or(""), "");
}

TEST_F(FilesTest, AMissingFileIsNamed) {
  const std::string path = directory_ / "missing";
  const auto read = ReadFile(path);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read.error().message, path + ": cannot open: No such file or directory");
}

TEST_F(FilesTest, ADirectoryIsNoFile) {
  const auto read = ReadFile(directory_.path());
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(read.error().message, directory_.path() + ": is a directory, a file is needed");
}

TEST_F(FilesTest, AnErrorWhileReadingIsNoEndOfFile) {
  // Nothing is mapped at address 0.
  const auto read = ReadFile("/proc/self/mem");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(read.error().message, "/proc/self/mem: cannot read: Input/output error");
}

TEST_F(FilesTest, AWriteReplacesTheFileAndLeavesNothingElse) {
  const std::string path = directory_ / "file";
  ASSERT_TRUE(WriteFileAtomically(path, "old and long").has_value());
  ASSERT_TRUE(WriteFileAtomically(path, std::string("n\0w", 3)).has_value());
  EXPECT_EQ(ReadFile(path).value_or("?"), std::string("n\0w", 3));
  EXPECT_THAT(Entries(), ElementsAre("file"));
}

TEST_F(FilesTest, WhoeverHasTheOldFileOpenKeepsAllOfIt) {
  const std::string path = directory_ / "file";
  Write(path, "old");
  std::ifstream reader(path);
  ASSERT_TRUE(WriteFileAtomically(path, "new and longer").has_value());
  std::string seen;
  std::getline(reader, seen);
  EXPECT_EQ(seen, "old");
  EXPECT_EQ(ReadFile(path).value_or("?"), "new and longer");
}

// As processes of several pods do that share a volume.
TEST_F(FilesTest, ManyMayWriteTheSameFileAtOnce) {
  const std::string path = directory_ / "file";
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i) {
    writers.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        const Status written = WriteFileAtomically(path, std::string(1000, 'a' + i));
        ASSERT_TRUE(written.has_value()) << written.error().message;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string last = ReadFile(path).value_or("?");
  EXPECT_EQ(last, std::string(1000, last[0]));
  EXPECT_THAT(Entries(), ElementsAre("file"));
}

TEST_F(FilesTest, APathWithoutADirectoryIsInTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_.path());
  const Status written = WriteFileAtomically("file", "x");
  fs::current_path(before);
  ASSERT_TRUE(written.has_value()) << written.error().message;
  EXPECT_THAT(Entries(), ElementsAre("file"));
}

TEST_F(FilesTest, AFileInAMissingDirectoryCannotBeWritten) {
  const std::string path = directory_ / "missing/file";
  const Status written = WriteFileAtomically(path, "x");
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(written.error().message, path + ": cannot create: No such file or directory");
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(FilesTest, ADirectoryIsNotReplaced) {
  const std::string path = directory_ / "taken";
  fs::create_directory(path);
  const Status written = WriteFileAtomically(path, "x");
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().message, path + ": cannot replace: Is a directory");
  EXPECT_THAT(Entries(), ElementsAre("taken"));
  EXPECT_TRUE(fs::is_directory(path));
}

TEST_F(FilesTest, AFullDiskLeavesTheOldFileAndNothingElse) {
  const SmallDisk disk(1);
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a tmpfs: " << disk.reason();
  const std::string path = disk.path() + "/file";
  Write(path, "old");
  const Status written = WriteFileAtomically(path, std::string(2 << 20, 'n'));
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(written.error().message, path + ": cannot write: No space left on device");
  EXPECT_EQ(ReadFile(path).value_or("?"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(disk.path()), {}), 1);
}

TEST_F(FilesTest, ADirectoryOfOthersTakesNoFile) {
  const std::string path = directory_ / "file";
  const uid_t me = geteuid();
  ASSERT_EQ(chmod(directory_.path().c_str(), 0500), 0);
  // Permissions do not hold root up.
  constexpr uid_t kNobody = 65534;
  if (me == 0 && seteuid(kNobody) != 0) GTEST_SKIP() << "root cannot be somebody else here";
  const Status written = WriteFileAtomically(path, "x");
  ASSERT_EQ(seteuid(me), 0);
  ASSERT_EQ(chmod(directory_.path().c_str(), 0700), 0);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(written.error().message, path + ": cannot create: Permission denied");
}

TEST_F(FilesTest, DirectoriesAreMadeWithTheirParents) {
  const std::string path = directory_ / "a/b/c";
  ASSERT_TRUE(MakeDirectories(path).has_value());
  EXPECT_TRUE(fs::is_directory(path));
  ASSERT_TRUE(WriteFileAtomically(path + "/kept", "x").has_value());
  EXPECT_TRUE(MakeDirectories(path).has_value());
  EXPECT_TRUE(MakeDirectories(path + "/").has_value());
  EXPECT_EQ(ReadFile(path + "/kept").value_or("?"), "x");
}

TEST_F(FilesTest, AFileInTheWayOfADirectoryIsNamed) {
  Write(directory_ / "file", "x");
  for (const std::string& path : {directory_ / "file", directory_ / "file/below"}) {
    const Status made = MakeDirectories(path);
    ASSERT_FALSE(made.has_value()) << path;
    EXPECT_EQ(made.error().message, path + ": cannot create directory: Not a directory");
  }
}

TEST_F(FilesTest, OnlyADirectoryCanBeSynced) {
  EXPECT_TRUE(SyncDirectory(directory_.path()).has_value());
  Write(directory_ / "file", "x");
  const Status synced = SyncDirectory(directory_ / "file");
  ASSERT_FALSE(synced.has_value());
  EXPECT_EQ(synced.error().message, (directory_ / "file") + ": cannot open: Not a directory");
  EXPECT_EQ(SyncDirectory(directory_ / "missing").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace everstep
