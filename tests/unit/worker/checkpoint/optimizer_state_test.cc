#include "worker/checkpoint/optimizer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/checkpoint/checkpoint_fixture.h"

namespace everstep {
namespace {

using ::testing::HasSubstr;
using testing::SmallLayout;
using testing::TempDir;
using testing::VectorOf;

SafetensorsFile Written(const TempDir& directory, const FlatLayout& layout,
                        const OptimizerVectors& vectors) {
  const std::string path = directory / "optimizer.safetensors";
  EXPECT_TRUE(WriteSafetensors(path, OptimizerTensors(layout, vectors), {}));
  auto file = SafetensorsFile::Open(path);
  EXPECT_TRUE(file) << file.error().message;
  return std::move(*file);
}

TEST(OptimizerStateTest, ComesBackWithZeroPadding) {
  const TempDir directory;
  const FlatLayout layout = SmallLayout();
  const auto first = VectorOf(layout, 3, 1);
  const auto second = VectorOf(layout, 3, 2);
  const auto file = Written(directory, layout, {{}, first, second});
  std::vector<float> first_back(first.size(), -1), second_back(first.size(), -1);
  const Status read = ReadOptimizerTensors(file, layout, {{}, first_back, second_back});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(first_back, first);
  EXPECT_EQ(second_back, second);
}

// Another order of the entries, and with it other offsets: the tensors are found by name.
TEST(OptimizerStateTest, DoesNotDependOnTheLayout) {
  const TempDir directory;
  const FlatLayout layout = SmallLayout();
  const auto first = VectorOf(layout, 3, 1);
  const auto file = Written(directory, layout, {{}, first, {}});
  FlatLayout other;
  for (auto entry = layout.entries.rbegin(); entry != layout.entries.rend(); ++entry) {
    other.entries.push_back(*entry);
    other.entries.back().offset = other.size;
    other.size += entry->numel + 5;
  }
  std::vector<float> back(static_cast<size_t>(other.size), -1);
  ASSERT_TRUE(ReadOptimizerTensors(file, other, {{}, back, {}}));
  for (size_t e = 0; e < layout.entries.size(); ++e) {
    const LayoutEntry& from = layout.entries[e];
    const LayoutEntry& to = other.entries[layout.entries.size() - 1 - e];
    ASSERT_EQ(from.name, to.name);
    for (int64_t i = 0; i < from.numel; ++i) {
      ASSERT_EQ(back[static_cast<size_t>(to.offset + i)],
                first[static_cast<size_t>(from.offset + i)]);
    }
  }
}

TEST(OptimizerStateTest, RefusesAnotherRunsParameters) {
  const TempDir directory;
  const FlatLayout layout = SmallLayout();
  const auto first = VectorOf(layout, 3, 1);
  const auto file = Written(directory, layout, {{}, first, {}});

  std::vector<float> back(first.size(), -1);
  const Status no_second = ReadOptimizerTensors(file, layout, {{}, back, back});
  ASSERT_FALSE(no_second);
  EXPECT_EQ(no_second.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(no_second.error().message, HasSubstr("'exp_avg_sq/layers.0.weight' is missing"));

  FlatLayout transposed = layout;
  std::swap(transposed.entries[0].shape[0], transposed.entries[0].shape[1]);
  EXPECT_THAT(ReadOptimizerTensors(file, transposed, {{}, back, {}}).error().message,
              HasSubstr("'exp_avg/layers.0.weight' is [40, 30] F32 and not [30, 40] F32"));

  FlatLayout fewer = layout;
  fewer.entries.pop_back();
  EXPECT_THAT(ReadOptimizerTensors(file, fewer, {{}, back, {}}).error().message,
              HasSubstr("'exp_avg/norm.weight' belongs to no parameter"));
  EXPECT_EQ(back, std::vector<float>(first.size(), -1)) << "nothing is written on an error";
}

}  // namespace
}  // namespace everstep
