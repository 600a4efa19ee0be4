// SIGKILL at any moment: the newest valid checkpoint always loads, and is the newest one that was
// announced as complete, or a newer one.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "tests/unit/worker/checkpoint/checkpoint_fixture.h"
#include "worker/checkpoint/checkpoint_store.h"

namespace everstep {
namespace {

using testing::IsStateOf;
using testing::NamesIn;
using testing::TempDir;

// The writing process.
class Loop {
 public:
  Loop(const std::string& directory, uint64_t generation, int64_t first_step) {
    int ends[2];
    EVERSTEP_CHECK(pipe2(ends, O_CLOEXEC) == 0);
    const std::string program = std::string(EVERSTEP_BINARY_DIR) + "/bin/checkpoint_loop";
    const std::string generation_text = std::to_string(generation);
    const std::string step_text = std::to_string(first_step);
    pid_ = fork();
    EVERSTEP_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      execl(program.c_str(), program.c_str(), directory.c_str(), generation_text.c_str(),
            step_text.c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    output_ = ends[0];
  }
  ~Loop() {
    if (pid_ > 0) (void)Kill();
    close(output_);
  }

  // Blocks until the process has announced something; false when it has ended.
  bool AwaitAnnouncement() {
    char byte = 0;
    if (read(output_, &byte, 1) != 1) return false;
    text_ += byte;
    return true;
  }
  // Waits for its end; the exit code.
  int AwaitExit() {
    while (AwaitAnnouncement()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // Kills it; the last step that it announced, or -1.
  int64_t Kill() {
    kill(pid_, SIGKILL);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    EXPECT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself: " << WEXITSTATUS(status);
    char buffer[4096];
    ssize_t got = 0;
    while ((got = read(output_, buffer, sizeof(buffer))) > 0) {
      text_.append(buffer, static_cast<size_t>(got));
    }
    const size_t end = text_.rfind('\n');
    if (end == std::string::npos) return -1;
    const size_t begin = end == 0 ? std::string::npos : text_.rfind('\n', end - 1);
    const size_t start = begin == std::string::npos ? 0 : begin + 1;
    return std::stoll(text_.substr(start, end - start));
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string text_;
};

int64_t ExpectNewestLoads(const std::string& directory, int64_t announced) {
  const auto found = FindNewestCheckpoint(directory);
  EXPECT_TRUE(found) << found.error().message;
  if (!found) return announced;
  EXPECT_TRUE(found->skipped.empty())
      << "half a checkpoint under a checkpoint's name: " << found->skipped.front().reason;
  if (!found->newest) {
    EXPECT_LT(announced, 0) << "announced and gone";
    return announced;
  }
  EXPECT_GE(found->step, announced);
  const auto loaded = LoadCheckpoint(*found->newest);
  EXPECT_TRUE(loaded) << loaded.error().message;
  if (loaded) {
    EXPECT_TRUE(IsStateOf(*loaded, found->step));
  }
  return std::max(announced, found->step);
}

TEST(CheckpointKillTest, AtManySeededMoments) {
  constexpr int kKills = 60;
  const TempDir directory;
  std::mt19937 random(20261130);
  int64_t newest = -1;
  for (int kill_number = 1; kill_number <= kKills; ++kill_number) {
    Loop loop(directory.path(), static_cast<uint64_t>(kill_number), newest + 1);
    // Some are killed while they start, most somewhere in their writing.
    if (kill_number % 8 != 0) {
      ASSERT_TRUE(loop.AwaitAnnouncement());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30000));
    newest = std::max(newest, loop.Kill());
    newest = ExpectNewestLoads(directory.path(), newest);
  }
  EXPECT_GE(newest, kKills / 2) << "the writers did write";

  // What they left behind is removed by the next lead.
  CheckpointStore store(directory.path(), {.run = "job", .free_space = {}});
  ASSERT_TRUE(store.TakeOver(kKills + 1));
  for (const std::string& name : NamesIn(directory.path())) {
    EXPECT_TRUE(name.starts_with("checkpoint-") || name.starts_with(".everstep-")) << name;
  }
  ExpectNewestLoads(directory.path(), newest);
}

// Two leads at once, the older one not knowing that it is older: it stops by itself.
TEST(CheckpointKillTest, TwoGenerationsRacing) {
  const TempDir directory;
  Loop older(directory.path(), 1, 0);
  ASSERT_TRUE(older.AwaitAnnouncement());
  Loop newer(directory.path(), 2, 1000);
  // At the fence: with a write, a replacement, or a removal.
  EXPECT_THAT(older.AwaitExit(), ::testing::AnyOf(4, 6, 7));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(newer.AwaitAnnouncement());
  const int64_t announced = newer.Kill();
  EXPECT_GE(announced, 1000);
  ExpectNewestLoads(directory.path(), announced);
}

}  // namespace
}  // namespace everstep
