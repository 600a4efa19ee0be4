// A full disk: found before writing where possible, survived while writing, and nothing of what
// was there is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tests/support/small_disk.h"
#include "tests/unit/worker/checkpoint/checkpoint_fixture.h"
#include "worker/checkpoint/checkpoint_store.h"

namespace everstep {
namespace {

using testing::ContentOf;
using ::testing::HasSubstr;
using testing::IsStateOf;
using testing::NamesIn;
using testing::SmallLayout;
using testing::TempDir;
namespace fs = std::filesystem;

void ExpectOnly(const std::string& directory, const std::string& checkpoint) {
  for (const std::string& name : NamesIn(directory)) {
    EXPECT_TRUE(name == checkpoint || name.starts_with(".everstep-")) << name;
  }
}

TEST(DiskFullTest, IsSeenBeforeAnythingIsWritten) {
  const TempDir directory;
  uint64_t free_bytes = 1 << 30;
  CheckpointStore store(directory.path(),
                        {.run = "job", .free_space = [&](const std::string&) -> Result<uint64_t> {
                           return free_bytes;
                         }});
  ASSERT_TRUE(store.TakeOver(1));
  ASSERT_TRUE(store.Write(ContentOf(10)));
  free_bytes = 1000;
  const auto full = store.Write(ContentOf(20));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(full.error().message, HasSubstr("checkpoint-20: no space: "));
  std::smatch match;
  ASSERT_TRUE(std::regex_search(full.error().message, match,
                                std::regex("and ([0-9]+) bytes .* are missing")))
      << full.error().message;
  EXPECT_EQ(store.WriteFinal(ContentOf(20).files).error().code, ErrorCode::kResourceExhausted);
  ExpectOnly(directory.path(), "checkpoint-10");

  // Exactly what was said to be missing is enough.
  free_bytes += std::stoull(match[1]) - 1;
  EXPECT_FALSE(store.Write(ContentOf(20)));
  free_bytes += 1;
  EXPECT_TRUE(store.Write(ContentOf(20)));
}

TEST(DiskFullTest, FillsUpWhileACheckpointIsWritten) {
  const SmallDisk disk(8);
  if (!disk.mounted()) GTEST_SKIP() << "no tmpfs can be mounted: " << disk.reason();
  const FlatLayout layout = SmallLayout(10000);  // 4.8 MiB
  // As if others wrote at the same time: the check before sees more than there is.
  CheckpointStore store(disk.path(),
                        {.run = "job", .free_space = [](const std::string&) -> Result<uint64_t> {
                           return uint64_t{1} << 40;
                         }});
  ASSERT_TRUE(store.TakeOver(1));
  ASSERT_TRUE(store.Write(ContentOf(10, layout)));
  const uint64_t free_before = disk.free_bytes();
  const auto full = store.Write(ContentOf(20, layout));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(full.error().message, HasSubstr("bytes (1."));
  EXPECT_THAT(full.error().message, HasSubstr("No space left on device"));
  ExpectOnly(disk.path(), "checkpoint-10");
  EXPECT_EQ(disk.free_bytes(), free_before) << "all of it is given back";
  {
    const auto loaded = LoadCheckpoint(disk.path() + "/checkpoint-10");
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_TRUE(IsStateOf(*loaded, 10, layout));
  }  // a mapped file would keep its space

  // Space again: the same store goes on.
  ASSERT_TRUE(store.RemoveAll());
  const auto written = store.Write(ContentOf(20, layout));
  EXPECT_TRUE(written) << written.error().message;
}

TEST(DiskFullTest, ANewLeadTakesOverOnAFullDisk) {
  const SmallDisk disk(8);
  if (!disk.mounted()) GTEST_SKIP() << "no tmpfs can be mounted: " << disk.reason();
  CheckpointStore old_lead(disk.path(), {.run = "job", .free_space = {}});
  ASSERT_TRUE(old_lead.TakeOver(1));
  ASSERT_TRUE(old_lead.Write(ContentOf(10)));
  disk.Fill();

  CheckpointStore lead(disk.path(), {.run = "job", .free_space = {}});
  EXPECT_TRUE(lead.TakeOver(2));
  EXPECT_EQ(lead.Write(ContentOf(20)).error().code, ErrorCode::kResourceExhausted);
  disk.Free();
  ASSERT_TRUE(lead.Write(ContentOf(20)));
  EXPECT_EQ(old_lead.Write(ContentOf(30)).error().code, ErrorCode::kAborted);
}

}  // namespace
}  // namespace everstep
