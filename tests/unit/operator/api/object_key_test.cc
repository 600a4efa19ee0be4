#include "operator/api/object_key.h"

#include <gtest/gtest.h>

namespace everstep {
namespace {

TEST(ObjectKeyTest, WithAndWithoutANamespace) {
  EXPECT_EQ(MakeKey("team", "job"), "team/job");
  EXPECT_EQ(MakeKey("", "job"), "job");
  EXPECT_EQ(KeyOf({{"metadata", {{"name", "job"}, {"namespace", "team"}}}}), "team/job");
  EXPECT_EQ(KeyOf({{"metadata", {{"name", "job"}}}}), "job");
}

TEST(ObjectKeyTest, ItsParts) {
  EXPECT_EQ(NamespaceOf("team/job"), "team");
  EXPECT_EQ(NameOf("team/job"), "job");
  EXPECT_EQ(NamespaceOf("job"), "");
  EXPECT_EQ(NameOf("job"), "job");
}

TEST(ObjectKeyTest, ANeighbourIsInTheSameNamespace) {
  EXPECT_EQ(KeyBeside("team/job", "job-0-0"), "team/job-0-0");
  EXPECT_EQ(KeyBeside("job", "job-0-0"), "job-0-0");
}

}  // namespace
}  // namespace everstep
