#include "operator/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace everstep {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(MetricsTest, JobsAreCountedByNamespaceAndPhase) {
  MetricsSnapshot snapshot;
  snapshot.jobs = {{{"a", "Running"}, 2}, {{"b", "Failed"}, 1}};
  const std::string page = MetricsPage(snapshot);
  EXPECT_THAT(page, HasSubstr("# TYPE everstep_jobs gauge\n"));
  EXPECT_THAT(page, HasSubstr("everstep_jobs{namespace=\"a\",phase=\"Running\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("everstep_jobs{namespace=\"b\",phase=\"Failed\"} 1\n"));
  // One family, however many labels.
  EXPECT_EQ(page.find("# TYPE everstep_jobs"), page.rfind("# TYPE everstep_jobs"));
  EXPECT_THAT(MetricsPage({}), Not(HasSubstr("everstep_jobs{")));
}

TEST(MetricsTest, TheQueueHasTheNamesThatDashboardsKnow) {
  MetricsSnapshot snapshot;
  snapshot.queue_depth = 3;
  snapshot.queue_added = 7;
  snapshot.queue_retried = 2;
  const std::string page = MetricsPage(snapshot);
  EXPECT_THAT(page, HasSubstr("workqueue_depth{name=\"trainingjob\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("# TYPE workqueue_adds_total counter\n"));
  EXPECT_THAT(page, HasSubstr("workqueue_adds_total{name=\"trainingjob\"} 7\n"));
  EXPECT_THAT(page, HasSubstr("workqueue_retries_total{name=\"trainingjob\"} 2\n"));
}

TEST(MetricsTest, WhoLeadsAndTheProcessItself) {
  MetricsSnapshot leader;
  leader.leading = true;
  EXPECT_THAT(MetricsPage(leader),
              HasSubstr("leader_election_master_status{name=\"everstep-operator\"} 1\n"));
  const std::string page = MetricsPage({});
  EXPECT_THAT(page, HasSubstr("leader_election_master_status{name=\"everstep-operator\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("process_resident_memory_bytes "));
  EXPECT_THAT(page, Not(HasSubstr("process_resident_memory_bytes 0\n")));
  EXPECT_THAT(page, HasSubstr("process_open_fds "));
}

}  // namespace
}  // namespace everstep
