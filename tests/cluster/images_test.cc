// The product's images run under the restricted Pod Security standard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/cluster/test_cluster.h"

namespace everstep::testing {
namespace {

using ::testing::HasSubstr;

class ClusterImagesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = std::make_unique<TestCluster>(1);
    ASSERT_TRUE(cluster_->started().ok()) << cluster_->started().Text();
    const CommandResult loaded = cluster_->Load(ProductImageArchive("worker"));
    ASSERT_TRUE(loaded.ok()) << loaded.Text();
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  // What the pod's program wrote until its end.
  static std::string RunToEnd(const PodShape& shape, const std::string& phase) {
    const TestNamespace space(*cluster_);
    const CommandResult applied = space.Apply(DumpJson(PodManifest(shape)));
    EXPECT_TRUE(applied.ok()) << applied.Text();
    EXPECT_TRUE(space.AwaitPhase(shape.name, phase))
        << space.Kubectl({"describe", "pod", shape.name}).output;
    return space.Kubectl({"logs", shape.name}).output;
  }

  inline static std::unique_ptr<TestCluster> cluster_;
};

// It is linked to LibTorch, so it starts only where all its libraries are found.
TEST_F(ClusterImagesTest, TheWorkerFindsItsLibraries) {
  const std::string output =
      RunToEnd({.name = "worker", .image = ProductImage("worker"), .command = {"everstep-worker"}},
               "Failed");
  EXPECT_THAT(output, HasSubstr("everstep-worker: no training file: name one"));
}

TEST_F(ClusterImagesTest, TheSupervisorIsProcessOne) {
  const std::string output = RunToEnd({.name = "supervisor",
                                       .image = ProductImage("worker"),
                                       .command = {"everstep-supervisor", "--", "sh", "-c",
                                                   "cat /proc/1/comm && id -u && [ $PPID = 1 ]"}},
                                      "Succeeded");
  EXPECT_THAT(output, HasSubstr("everstep-superv\n65532\n"));
}

}  // namespace
}  // namespace everstep::testing
