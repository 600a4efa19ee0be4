// Which generation follows from who is alive.
#include <algorithm>

#include "common/check.h"
#include "common/strings.h"
#include "operator/rendezvous/session.h"

namespace everstep {
namespace {

std::string RankList(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (int rank : ranks) names.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + Join(names, ", ");
}

// "rank 2 joins", "ranks 2, 3 join".
std::string Joins(const std::vector<int>& ranks) {
  return RankList(ranks) + (ranks.size() == 1 ? " joins" : " join");
}

std::vector<int> Union(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> all;
  std::ranges::set_union(a, b, std::back_inserter(all));
  return all;
}

}  // namespace

std::vector<std::vector<int>> AssignLogicalRanks(const std::vector<int>& ranks, int logical_world) {
  EVERSTEP_CHECK(!ranks.empty() && std::ranges::is_sorted(ranks));
  std::vector<std::vector<int>> hosted(ranks.size());
  std::vector<int> orphans;
  for (int logical = 0; logical < logical_world; ++logical) {
    const auto host = std::ranges::find(ranks, logical);
    if (host == ranks.end()) {
      orphans.push_back(logical);
    } else {
      hosted[static_cast<size_t>(host - ranks.begin())].push_back(logical);
    }
  }
  for (int logical : orphans) {
    // min_element gives the first of the least loaded, which is the lowest rank.
    std::ranges::min_element(hosted, {}, &std::vector<int>::size)->push_back(logical);
  }
  for (auto& list : hosted) std::ranges::sort(list);
  return hosted;
}

bool Session::IsAlive(int rank) const {
  const RankState state = ranks_.at(rank).state;
  return state == RankState::kStarting || state == RankState::kReady || state == RankState::kMember;
}

std::vector<int> Session::RanksIn(RankState state) const {
  std::vector<int> found;
  for (const auto& [number, rank] : ranks_) {
    if (rank.state == state) found.push_back(number);
  }
  return found;
}

bool Session::Settled() const {
  if (pending_ || current_.generation == 0) return false;
  return std::ranges::all_of(current_.members, [&](const wire::Member& member) {
    const Rank& rank = ranks_.at(member.rank);
    return rank.state == RankState::kMember && rank.regrouped == current_.generation;
  });
}

void Session::Reconsider() {
  switch (phase_) {
    case SessionPhase::kForming:
      return ReconsiderForming();
    case SessionPhase::kShort:
      return ReconsiderShort();
    case SessionPhase::kRunning:
      return ReconsiderRunning();
    case SessionPhase::kStopping:
    case SessionPhase::kFinished:
    case SessionPhase::kFailed:
      return;
  }
}

void Session::ReconsiderForming() {
  const std::vector<int> ready = RanksIn(RankState::kReady);
  const int count = static_cast<int>(ready.size());
  if (count == 0 || count < options_.min_members) return;
  const bool again = generation_ > 0;
  if (count >= allowed_members_) {
    Propose(ready, false,
            count == world() ? "all ranks are ready"
                             : "no more than " + RankList(ready) + " to be had");
  } else if (again && now_ - phase_since_ >= options_.refill_deadline) {
    Propose(ready, false, "the others than " + RankList(ready) + " did not come in time");
  }
}

void Session::ReconsiderShort() {
  const std::vector<int> live = RanksIn(RankState::kMember);
  if (live.empty()) return WaitForAll();
  const std::vector<int> all = Union(live, RanksIn(RankState::kReady));
  if (static_cast<int>(all.size()) < options_.min_members) return;
  Propose(all, false, "enough ranks are ready again");
}

void Session::ReconsiderRunning() {
  const std::vector<int> live = RanksIn(RankState::kMember);
  const std::vector<int> ready = RanksIn(RankState::kReady);
  if (live.size() < newest().members.size()) return MembersLost(live, ready);
  if (exchange_broken_ && now_ - *exchange_broken_ >= options_.peer_lost_grace) {
    return Propose(live, false, "the exchange broke though no member died");
  }
  if (ready.empty() || exchange_broken_ || !Settled()) return;
  TimePoint first = now_;
  for (int rank : ready) first = std::min(first, ranks_.at(rank).ready_since);
  const bool others_start = !RanksIn(RankState::kStarting).empty();
  if (others_start && now_ - first < options_.join_window) return;
  Propose(Union(live, ready), true, Joins(ready));
}

void Session::MembersLost(const std::vector<int>& live, const std::vector<int>& ready) {
  std::vector<int> lost;
  for (const wire::Member& member : newest().members) {
    if (!std::ranges::binary_search(live, member.rank)) lost.push_back(member.rank);
  }
  if (live.empty()) return WaitForAll();
  if (static_cast<int>(live.size()) >= options_.min_members) {
    return Propose(live, false, "lost " + RankList(lost));
  }
  if (static_cast<int>(live.size() + ready.size()) >= options_.min_members) {
    return Propose(Union(live, ready), false, "lost " + RankList(lost) + ", " + Joins(ready));
  }
  pending_.reset();
  phase_ = SessionPhase::kShort;
  phase_since_ = now_;
}

void Session::WaitForAll() {
  pending_.reset();
  phase_ = SessionPhase::kForming;
  phase_since_ = now_;
  ReconsiderForming();
}

void Session::Propose(std::vector<int> ranks, bool planned, const std::string& reason) {
  wire::Membership membership;
  membership.generation = ++generation_;
  membership.planned = planned;
  membership.durable_step = durable_step_;
  auto hosted = AssignLogicalRanks(ranks, world());
  for (size_t i = 0; i < ranks.size(); ++i) {
    Rank& rank = ranks_.at(ranks[i]);
    rank.state = RankState::kMember;
    membership.members.push_back({.rank = ranks[i],
                                  .endpoint = rank.endpoint,
                                  .logical_ranks = std::move(hosted[i]),
                                  .newcomer = !rank.holds_state});
  }
  if (!planned) {
    newest_unplanned_ = generation_;
    exchange_broken_.reset();
  }
  phase_ = SessionPhase::kRunning;
  phase_since_ = now_;
  persist_again_.reset();
  pending_reason_ = "generation " + std::to_string(generation_) + ": " + reason;
  pending_ = std::move(membership);
  Emit(session::Persist{*pending_}, pending_reason_);
}

}  // namespace everstep
