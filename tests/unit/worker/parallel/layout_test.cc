#include "worker/parallel/layout.h"

#include <gtest/gtest.h>

namespace everstep {
namespace {

TEST(LayoutTest, EntriesAreAlignedAndAdjacent) {
  FlatLayout layout;
  AppendEntry(layout, {.name = "a", .shape = {3, 5}});
  AppendEntry(layout, {.name = "b", .shape = {64}, .decay = false});
  AppendEntry(layout, {.name = "scalar", .shape = {}});
  AppendEntry(layout, {.name = "c", .shape = {65}, .lr_scale = 16});

  ASSERT_EQ(layout.entries.size(), 4U);
  EXPECT_EQ(layout.entries[0].offset, 0);
  EXPECT_EQ(layout.entries[0].numel, 15);
  EXPECT_EQ(layout.entries[1].offset, 64);
  EXPECT_FALSE(layout.entries[1].decay);
  EXPECT_EQ(layout.entries[2].offset, 128);
  EXPECT_EQ(layout.entries[2].numel, 1);
  EXPECT_EQ(layout.entries[3].offset, 192);
  EXPECT_EQ(layout.entries[3].lr_scale, 16);
  EXPECT_EQ(layout.size, 320);
}

}  // namespace
}  // namespace everstep
