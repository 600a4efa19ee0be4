#include "operator/kube/resource.h"

#include <gtest/gtest.h>

namespace everstep::kube {
namespace {

TEST(ResourcePathTest, CoreAndNamedGroups) {
  EXPECT_EQ(ResourcePath(kPods, "a", "b"), "/api/v1/namespaces/a/pods/b");
  EXPECT_EQ(ResourcePath(kTrainingJobs, "a", "b", "status"),
            "/apis/everstep.dev/v1alpha1/namespaces/a/trainingjobs/b/status");
}

TEST(ResourcePathTest, CollectionsOfOneAndOfAllNamespaces) {
  EXPECT_EQ(ResourcePath(kPods, "a"), "/api/v1/namespaces/a/pods");
  EXPECT_EQ(ResourcePath(kPods, ""), "/api/v1/pods");
}

TEST(ResourcePathTest, WhatBelongsToNoNamespace) {
  EXPECT_EQ(ResourcePath(kNodes, "a", "n"), "/api/v1/nodes/n");
  EXPECT_EQ(ResourcePath(kTokenReviews, ""), "/apis/authentication.k8s.io/v1/tokenreviews");
}

}  // namespace
}  // namespace everstep::kube
