// What the API server refuses, everstep validate refuses as well; tests/manifests asks a real API
// server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/api/training_job.h"
#include "tests/support/manifest_table.h"

namespace everstep {
namespace {

using testing::HasSubstr;

Result<TrainingJob> Validate(const ManifestRow& row) {
  return ParseTrainingJob({"job.yaml", row.manifest, {}});
}

class RefusedManifestTest : public testing::TestWithParam<ManifestRow> {};

TEST_P(RefusedManifestTest, IsRefusedByValidate) {
  // It sees a manifest, not what was there before.
  if (GetParam().before) return;
  const auto job = Validate(GetParam());
  ASSERT_FALSE(job.has_value()) << DumpJson(GetParam().manifest);
  EXPECT_THAT(job.error().message, HasSubstr(GetParam().validate));
  EXPECT_NE(GetParam().validate, "");
}

INSTANTIATE_TEST_SUITE_P(Table, RefusedManifestTest,
                         testing::ValuesIn(ReadManifestTable("refused")), TestNameOf);

class AcceptedManifestTest : public testing::TestWithParam<ManifestRow> {};

TEST_P(AcceptedManifestTest, IsAcceptedByValidate) {
  const auto job = Validate(GetParam());
  EXPECT_TRUE(job.has_value()) << job.error().message;
}

INSTANTIATE_TEST_SUITE_P(Table, AcceptedManifestTest,
                         testing::ValuesIn(ReadManifestTable("accepted")), TestNameOf);

TEST(ExamplesTest, AreValid) {
  for (const char* name : {"tiny-sft", "qwen-sft"}) {
    const std::string path = std::string(EVERSTEP_SOURCE_DIR) + "/examples/k8s/" + name + ".yaml";
    const auto document = ParseDocument(ReadFile(path).value_or(""), path);
    ASSERT_TRUE(document.has_value()) << document.error().message;
    const auto job = ParseTrainingJob(*document);
    ASSERT_TRUE(job.has_value()) << job.error().message;
    EXPECT_EQ(job->name, name);
  }
}

TEST(ManifestTableTest, HasFortyThatAreRefused) {
  EXPECT_GE(ReadManifestTable("refused").size(), 40u);
}

}  // namespace
}  // namespace everstep
