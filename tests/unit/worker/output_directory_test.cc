#include "worker/output_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/support/temp_dir.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

TEST(OutputDirectoryTest, ARelativeOneLiesOnTheVolume) {
  EXPECT_EQ(ResolveOutputDirectory("run/a", "/checkpoints"), "/checkpoints/run/a");
  EXPECT_EQ(ResolveOutputDirectory("/data/a", "/checkpoints"), "/data/a");
  EXPECT_EQ(ResolveOutputDirectory("a", ""), (fs::current_path() / "a").string());
}

class PrepareOutputDirectoryTest : public testing::Test {
 protected:
  std::string ErrorOf(const OutputDirectoryRules& rules) {
    const Status prepared = PrepareOutputDirectory(out_, rules);
    return prepared ? "" : prepared.error().message;
  }
  void Put(const std::string& name) {
    fs::create_directories((fs::path(out_) / name).parent_path());
    std::ofstream(fs::path(out_) / name) << "x";
  }

  TempDir directory_;
  const std::string out_ = directory_ / "out";
};

TEST_F(PrepareOutputDirectoryTest, IsMadeAndLeftEmpty) {
  EXPECT_EQ(ErrorOf({}), "");
  EXPECT_TRUE(fs::is_empty(out_));
}

TEST_F(PrepareOutputDirectoryTest, StrangersFilesAreNotWrittenOverAtTheFirstStart) {
  Put("thesis.tex");
  EXPECT_EQ(ErrorOf({}), out_ +
                             ": output_dir is not empty and holds no checkpoint to continue from: "
                             "set overwrite_output_dir: true or choose another directory");
  EXPECT_EQ(ErrorOf({.overwrite = true}), "");
  EXPECT_EQ(ErrorOf({.resumes_from = true}), "");
  EXPECT_EQ(ErrorOf({.first_start = false}), "");
}

TEST_F(PrepareOutputDirectoryTest, ACheckpointIsGoneOnFrom) {
  Put("checkpoint-8/model.safetensors");
  EXPECT_EQ(ErrorOf({}), "");
}

TEST_F(PrepareOutputDirectoryTest, OurOwnHiddenFilesCountForNothing) {
  Put(".everstep-fence.json");
  Put(".everstep-lock");
  EXPECT_EQ(ErrorOf({}), "");
}

// All ranks of a job do it at the same time, each in a process of its own.
TEST_F(PrepareOutputDirectoryTest, RanksDoNotDisturbEachOther) {
  constexpr int kRounds = 200;
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      int failures = 0;
      for (int round = 0; round < kRounds; ++round) failures += ErrorOf({}).empty() ? 0 : 1;
      _exit(failures == 0 ? 0 : 1);
    }
    ranks.push_back(pid);
  }
  for (const pid_t pid : ranks) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace everstep
