#include "worker/recovery/membership_mailbox.h"

#include <gtest/gtest.h>

#include <thread>

namespace everstep {
namespace {

wire::Membership Generation(uint64_t generation, bool planned = false) {
  wire::Membership membership;
  membership.generation = generation;
  membership.planned = planned;
  return membership;
}

TEST(MembershipMailboxTest, WaitsForANewerGeneration) {
  MembershipMailbox mailbox;
  std::thread delivery([&] { mailbox.Deliver(Generation(1)); });
  const auto membership = mailbox.AwaitNewer(0, false);
  delivery.join();
  ASSERT_TRUE(membership);
  EXPECT_EQ(membership->generation, 1u);
}

TEST(MembershipMailboxTest, OlderGenerationsAreDropped) {
  MembershipMailbox mailbox;
  mailbox.Deliver(Generation(5));
  mailbox.Deliver(Generation(4));
  EXPECT_EQ(mailbox.AwaitNewer(0, false)->generation, 5u);
}

TEST(MembershipMailboxTest, APlannedChangeDoesNotInterrupt) {
  MembershipMailbox mailbox;
  int interrupts = 0;
  mailbox.SetInterrupt([&] { ++interrupts; });
  mailbox.Deliver(Generation(1));
  EXPECT_EQ(interrupts, 1);

  mailbox.Deliver(Generation(2, /*planned=*/true));
  EXPECT_EQ(interrupts, 1);
  EXPECT_FALSE(mailbox.Superseded(1));
  EXPECT_EQ(mailbox.PendingPlanned(1), 2u);
  EXPECT_EQ(mailbox.PendingPlanned(2), 0u);
}

TEST(MembershipMailboxTest, ADeathInterruptsAndReplacesAPlannedChange) {
  MembershipMailbox mailbox;
  mailbox.Deliver(Generation(1));
  mailbox.Deliver(Generation(2, /*planned=*/true));
  int interrupts = 0;
  mailbox.SetInterrupt([&] { ++interrupts; });
  mailbox.Deliver(Generation(3));
  EXPECT_EQ(interrupts, 1);
  EXPECT_TRUE(mailbox.Superseded(1));
  EXPECT_TRUE(mailbox.Superseded(2));
  EXPECT_FALSE(mailbox.Superseded(3));
  EXPECT_EQ(mailbox.PendingPlanned(1), 0u);
}

TEST(MembershipMailboxTest, AfterAFailureAPlannedChangeIsNotEnough) {
  MembershipMailbox mailbox;
  mailbox.Deliver(Generation(1));
  mailbox.Deliver(Generation(2, /*planned=*/true));
  std::thread delivery([&] { mailbox.Deliver(Generation(3)); });
  EXPECT_EQ(mailbox.AwaitNewer(1, /*after_failure=*/true)->generation, 3u);
  delivery.join();
}

TEST(MembershipMailboxTest, ClosingAndStoppingEndTheWait) {
  MembershipMailbox closed;
  std::thread closing([&] { closed.Close(); });
  EXPECT_EQ(closed.AwaitNewer(0, false).error().code, ErrorCode::kAborted);
  closing.join();
  EXPECT_TRUE(closed.Superseded(99));

  MembershipMailbox stopped;
  std::thread stopping([&] { stopped.RequestStop(); });
  EXPECT_FALSE(stopped.AwaitNewer(0, false));
  stopping.join();
  EXPECT_TRUE(stopped.stop_requested());
}

}  // namespace
}  // namespace everstep
