#include "worker/checkpoint/checkpoint_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/files.h"
#include "tests/unit/worker/checkpoint/checkpoint_fixture.h"

namespace everstep {
namespace {

using testing::ContentOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsStateOf;
using testing::NamesIn;
using testing::TempDir;
namespace fs = std::filesystem;

constexpr char kFenceFile[] = ".everstep-fence.json";
constexpr char kLockFile[] = ".everstep-lock";

// The store of a generation's lead.
class Lead : public CheckpointStore {
 public:
  Lead(const TempDir& directory, uint64_t generation)
      : CheckpointStore(directory.path(), {.run = "job", .free_space = {}}) {
    EXPECT_TRUE(TakeOver(generation));
  }
};

class StoreTest : public ::testing::Test {
 protected:
  void Write(CheckpointStore& store, int64_t step) {
    const auto path = store.Write(ContentOf(step));
    ASSERT_TRUE(path) << path.error().message;
    EXPECT_EQ(*path, directory_ / CheckpointName(step));
  }
  void ExpectNewest(int64_t step) {
    const auto found = FindNewestCheckpoint(directory_.path());
    ASSERT_TRUE(found && found->newest);
    EXPECT_EQ(found->step, step);
    const auto loaded = LoadCheckpoint(*found->newest);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_TRUE(IsStateOf(*loaded, step));
  }
  TempDir directory_;
};

TEST_F(StoreTest, WhatIsWrittenComesBack) {
  Lead store(directory_, 3);
  Write(store, 20);
  EXPECT_THAT(NamesIn(directory_.path()), ElementsAre(kFenceFile, kLockFile, "checkpoint-20"));
  EXPECT_THAT(NamesIn(directory_ / "checkpoint-20"),
              ElementsAre("config.json", "everstep", "model.safetensors", "trainer_state.json"));
  const auto loaded = LoadCheckpoint(directory_ / "checkpoint-20");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_TRUE(IsStateOf(*loaded, 20));
  EXPECT_EQ(loaded->manifest.generation, 3u);
  EXPECT_EQ(loaded->manifest.logical_world, 4);
  EXPECT_EQ(loaded->manifest.layout, LayoutJson(testing::SmallLayout()));
  EXPECT_EQ(loaded->state.shape, ContentOf(20).resume->shape);
  EXPECT_EQ(loaded->state.epoch, 2.5);
}

TEST_F(StoreTest, CopiesFilesOfTheModel) {
  ASSERT_TRUE(WriteFileAtomically(directory_ / "source.json", "{\"a\": 1}"));
  Lead store(directory_, 1);
  CheckpointContent content = ContentOf(1);
  content.files.copied_files.push_back({"generation_config.json", directory_ / "source.json"});
  ASSERT_TRUE(store.Write(content));
  EXPECT_EQ(ReadFile(directory_ / "checkpoint-1/generation_config.json").value(), "{\"a\": 1}");
  content.step = 2;
  content.files.copied_files.push_back({"missing.json", directory_ / "missing.json"});
  const auto missing = store.Write(content);
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("missing.json: cannot be copied"));
  EXPECT_FALSE(fs::exists(directory_ / "checkpoint-2"));
}

TEST_F(StoreTest, TheNewestIsTheHighestStep) {
  Lead store(directory_, 1);
  for (const int64_t step : {1000, 90, 200}) Write(store, step);
  ExpectNewest(1000);
}

TEST_F(StoreTest, WritingAStepAgainReplacesIt) {
  Lead store(directory_, 1);
  Write(store, 20);
  CheckpointContent other = ContentOf(20);
  other.files.text_files.push_back({"extra.json", "{}"});
  ASSERT_TRUE(store.Write(other));
  EXPECT_TRUE(fs::exists(directory_ / "checkpoint-20/extra.json"));
  ExpectNewest(20);
  EXPECT_THAT(NamesIn(directory_.path()), ElementsAre(kFenceFile, kLockFile, "checkpoint-20"));
}

TEST_F(StoreTest, NothingThereYet) {
  const auto empty = FindNewestCheckpoint(directory_.path());
  ASSERT_TRUE(empty);
  EXPECT_FALSE(empty->newest);
  EXPECT_TRUE(FindNewestCheckpoint(directory_ / "nowhere"));
}

TEST_F(StoreTest, WithoutOptimizerItIsNotForResuming) {
  Lead store(directory_, 1);
  Write(store, 10);
  CheckpointContent model_only = ContentOf(20);
  model_only.resume.reset();
  ASSERT_TRUE(store.Write(model_only));
  EXPECT_FALSE(fs::exists(directory_ / "checkpoint-20/everstep/optimizer.safetensors"));
  const auto found = store.FindNewest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 10);
  ASSERT_EQ(found->skipped.size(), 1u);
  EXPECT_THAT(found->skipped[0].reason, HasSubstr("save_only_model"));
  EXPECT_EQ(LoadCheckpoint(directory_ / "checkpoint-20").error().code,
            ErrorCode::kFailedPrecondition);
}

TEST_F(StoreTest, OtherProgramsCheckpointsAreSkippedWithTheReason) {
  Lead store(directory_, 1);
  Write(store, 10);
  fs::create_directories(directory_ / "checkpoint-30");
  fs::create_directories(directory_ / "checkpoint-latest");
  fs::create_directories(directory_ / "checkpoint-40x");
  const auto found = store.FindNewest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 10);
  ASSERT_EQ(found->skipped.size(), 1u);
  EXPECT_THAT(found->skipped[0].reason, HasSubstr("was not written by Everstep"));
}

TEST_F(StoreTest, AnOlderGenerationCommitsNothing) {
  Lead old_lead(directory_, 3);
  Write(old_lead, 10);
  Lead new_lead(directory_, 4);
  const auto late = old_lead.Write(ContentOf(20));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kAborted);
  EXPECT_EQ(old_lead.WriteFinal(ContentOf(20).files).error().code, ErrorCode::kAborted);
  EXPECT_EQ(old_lead.RemoveAll().error().code, ErrorCode::kAborted);
  EXPECT_EQ(old_lead.TakeOver(3).error().code, ErrorCode::kAborted);
  EXPECT_THAT(NamesIn(directory_.path()), ElementsAre(kFenceFile, kLockFile, "checkpoint-10"));
  Write(new_lead, 20);
  ExpectNewest(20);
}

TEST_F(StoreTest, TakingOverRemovesWhatWasLeftHalfWritten) {
  fs::create_directories(directory_ / ".checkpoint-30.tmp.g2/everstep");
  fs::create_directories(directory_ / ".checkpoint-10.trash.g2");
  ASSERT_TRUE(WriteFileAtomically(directory_ / ".model.safetensors.tmp.g1", "half"));
  ASSERT_TRUE(WriteFileAtomically(directory_ / ".mine.tmp.gx", "not ours"));
  ASSERT_TRUE(WriteFileAtomically(directory_ / "notes.tmp.g1", "not ours"));
  const Lead store(directory_, 3);
  EXPECT_THAT(NamesIn(directory_.path()),
              ElementsAre(kFenceFile, kLockFile, ".mine.tmp.gx", "notes.tmp.g1"));
}

// A replacement on a file system without exchange, cut off between its two renames.
TEST_F(StoreTest, TakingOverPutsAReplacedOneBack) {
  {
    Lead store(directory_, 1);
    Write(store, 20);
  }
  fs::rename(directory_ / "checkpoint-20", directory_ / ".checkpoint-20.replaced.g1");
  const Lead store(directory_, 2);
  ExpectNewest(20);
  EXPECT_FALSE(fs::exists(directory_ / ".checkpoint-20.replaced.g1"));
}

TEST_F(StoreTest, RetentionKeepsTheNewest) {
  Lead store(directory_, 1);
  for (const int64_t step : {10, 20, 100}) Write(store, step);
  fs::create_directories(directory_ / "checkpoint-5");  // of another program
  const auto removed = store.Retain({.total_limit = 1, .best_step = {}, .milestone_steps = 0});
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_THAT(*removed, ElementsAre(directory_ / "checkpoint-10", directory_ / "checkpoint-20"));
  EXPECT_THAT(NamesIn(directory_.path()),
              ElementsAre(kFenceFile, kLockFile, "checkpoint-100", "checkpoint-5"));
  ExpectNewest(100);
}

TEST_F(StoreTest, RetentionReadsTheNewestBeforeItRemovesOthers) {
  Lead store(directory_, 1);
  for (const int64_t step : {10, 20, 30}) Write(store, step);
  testing::FlipByte(directory_ / "checkpoint-30/model.safetensors", 600);
  const auto removed = store.Retain({.total_limit = 1, .best_step = {}, .milestone_steps = 0});
  ASSERT_TRUE(removed);
  EXPECT_THAT(*removed, ElementsAre(directory_ / "checkpoint-10"));
  ExpectNewest(20);
}

TEST_F(StoreTest, RemoveAllLeavesOthersAlone) {
  Lead store(directory_, 1);
  for (const int64_t step : {10, 20}) Write(store, step);
  fs::create_directories(directory_ / "checkpoint-5");
  ASSERT_TRUE(store.RemoveAll());
  EXPECT_THAT(NamesIn(directory_.path()), ElementsAre(kFenceFile, kLockFile, "checkpoint-5"));
}

TEST_F(StoreTest, RemoveAllWorksBeforeTakingOver) {
  {
    Lead store(directory_, 7);
    Write(store, 10);
  }
  CheckpointStore fresh(directory_.path(), {.run = "job", .free_space = {}});
  ASSERT_TRUE(fresh.RemoveAll());
  EXPECT_FALSE(fs::exists(directory_ / "checkpoint-10"));
}

TEST_F(StoreTest, FinalFilesLieInTheDirectoryItself) {
  Lead store(directory_, 1);
  Write(store, 10);
  ASSERT_TRUE(WriteFileAtomically(directory_ / "config.json", "old"));
  const Status final = store.WriteFinal(ContentOf(12).files);
  ASSERT_TRUE(final) << final.error().message;
  EXPECT_THAT(NamesIn(directory_.path()),
              ElementsAre(kFenceFile, kLockFile, "checkpoint-10", "config.json",
                          "model.safetensors", "trainer_state.json"));
  EXPECT_EQ(ReadFile(directory_ / "config.json").value(), "{\"model_type\": \"tiny\"}\n");
  EXPECT_TRUE(SafetensorsFile::Open(directory_ / "model.safetensors"));
}

TEST(ShapeTest, DifferencesAreNamed) {
  RunShape saved{.logical_world = 4, .threads_per_process = 2, .seed = 42};
  RunShape wanted = saved;
  EXPECT_TRUE(Differences(saved, wanted).empty());
  wanted.logical_world = 2;
  wanted.schedule = Json{{"type", "cosine"}};
  EXPECT_THAT(Differences(saved, wanted),
              ElementsAre("logical_world: the checkpoint has 4, this run has 2",
                          "schedule: the checkpoint has {}, this run has {\"type\":\"cosine\"}"));
}

}  // namespace
}  // namespace everstep
