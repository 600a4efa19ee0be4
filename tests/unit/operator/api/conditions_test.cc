#include "operator/api/conditions.h"

#include <gtest/gtest.h>

namespace everstep {
namespace {

class ConditionsTest : public testing::Test {
 protected:
  void Set(const std::string& type, bool value, const std::string& reason = "Because",
           const std::string& message = "text", int64_t generation = 1) {
    SetCondition(status_, {type, value, reason, message}, generation, clock_.WallNow());
  }
  OrderedJson status_ = OrderedJson::object();
  ManualClock clock_;
};

TEST_F(ConditionsTest, ANewConditionHasEveryFieldOfKubernetes) {
  Set("Running", true, "RanksReady", "4 of 4 ranks", 7);
  EXPECT_EQ(DumpJson(status_),
            R"({"conditions":[{"type":"Running","lastTransitionTime":")" +
                FormatTime(clock_.WallNow()) +
                R"(","status":"True","reason":"RanksReady","message":"4 of 4 ranks",)"
                R"("observedGeneration":7}]})");
  EXPECT_TRUE(HasCondition(status_, "Running"));
}

TEST_F(ConditionsTest, TheTransitionTimeChangesOnlyWithTheStatus) {
  Set("Running", true);
  const auto first = status_["conditions"][0]["lastTransitionTime"];

  clock_.Advance(std::chrono::minutes(1));
  Set("Running", true, "OtherReason", "other text", 2);
  EXPECT_EQ(status_["conditions"][0]["lastTransitionTime"], first);
  EXPECT_EQ(status_["conditions"][0]["reason"], "OtherReason");
  EXPECT_EQ(status_["conditions"][0]["message"], "other text");
  EXPECT_EQ(status_["conditions"][0]["observedGeneration"], 2);

  Set("Running", false);
  EXPECT_EQ(status_["conditions"][0]["lastTransitionTime"], FormatTime(clock_.WallNow()));
  EXPECT_NE(status_["conditions"][0]["lastTransitionTime"], first);
}

TEST_F(ConditionsTest, TypesDoNotDisturbEachOther) {
  Set("Running", true);
  Set("Failed", false);
  Set("Running", false);
  EXPECT_EQ(status_["conditions"].size(), 2u);
  EXPECT_EQ(status_["conditions"][0]["type"], "Running");
  EXPECT_EQ(status_["conditions"][1]["type"], "Failed");
}

TEST_F(ConditionsTest, AnAbsentConditionIsFalse) {
  EXPECT_FALSE(HasCondition(status_, "Running"));
  Set("Running", false);
  EXPECT_FALSE(HasCondition(status_, "Running"));
  EXPECT_FALSE(HasCondition(status_, "Ready"));
}

TEST_F(ConditionsTest, ConditionsThatAreNoListAreReplaced) {
  status_["conditions"] = "garbage";
  Set("Running", true);
  EXPECT_TRUE(HasCondition(status_, "Running"));
}

}  // namespace
}  // namespace everstep
