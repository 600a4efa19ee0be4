#include "operator/kube/leader_election.h"

#include <random>
#include <utility>

#include "common/log.h"

namespace everstep::kube {
namespace {

constexpr double kJitter = 0.2;  // of the retry time, so that candidates do not meet

std::string MicroTime(WallTime time) {
  std::string text = FormatTime(time);
  text.insert(text.size() - 1, ".000000");
  return text;
}

}  // namespace

std::optional<OrderedJson> ElectionState::Decide(const OrderedJson& spec, TimePoint now,
                                                 WallTime wall_now) {
  if (spec != seen_) {
    seen_ = spec;
    seen_at_ = now;
  }
  const bool exists = spec.is_object();
  const std::string holder = exists ? spec.value("holderIdentity", "") : "";
  const bool ours = holder == identity_;
  if (!ours) leading_ = false;
  const Duration lasts =
      std::chrono::seconds(exists ? spec.value("leaseDurationSeconds", int64_t{0}) : 0);
  if (exists && !ours && !holder.empty() && now - seen_at_ < lasts) return std::nullopt;
  const std::string time = MicroTime(wall_now);
  const int64_t transitions = exists ? spec.value("leaseTransitions", int64_t{0}) : 0;
  return OrderedJson{{"holderIdentity", identity_},
                     {"leaseDurationSeconds",
                      std::chrono::duration_cast<std::chrono::seconds>(times_.lease).count()},
                     {"acquireTime", ours ? spec.value("acquireTime", time) : time},
                     {"renewTime", time},
                     {"leaseTransitions", ours || !exists ? transitions : transitions + 1}};
}

void ElectionState::Written(TimePoint now) {
  leading_ = true;
  renewed_at_ = now;
}

bool ElectionState::IsOverdue(TimePoint now) const {
  return leading_ && now - renewed_at_ >= times_.renew_deadline;
}

std::optional<OrderedJson> ElectionState::Release(const OrderedJson& spec,
                                                  WallTime wall_now) const {
  if (!spec.is_object() || spec.value("holderIdentity", "") != identity_) return std::nullopt;
  OrderedJson released = spec;
  released["holderIdentity"] = "";
  released["leaseDurationSeconds"] = 1;
  released["renewTime"] = MicroTime(wall_now);
  return released;
}

LeaderElection::LeaderElection(const Options& options, RestClient& client, const Clock& clock,
                               std::function<void()> on_lost)
    : options_(options),
      client_(client),
      clock_(clock),
      on_lost_(std::move(on_lost)),
      state_(options.identity, options.times) {
  thread_ = std::thread([this] { Run(); });
}

LeaderElection::~LeaderElection() { Stop(); }

bool LeaderElection::AwaitLeadership() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return leading_ || stopping_; });
  return leading_ && !stopping_;
}

bool LeaderElection::IsLeading() {
  const std::lock_guard lock(mutex_);
  return leading_;
}

void LeaderElection::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LeaderElection::Run() {
  std::mt19937 random(std::random_device{}());
  std::uniform_real_distribution<double> spread(1, 1 + kJitter);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const bool before = state_.leading();
    const Status round = Round();
    if (!round) LogDebug("lease: " + round.error().message);
    lock.lock();
    const bool lost = before && (!state_.leading() || state_.IsOverdue(clock_.Now()));
    if (state_.leading() && !before) LogInfo("leads now", {{"identity", state_.identity()}});
    leading_ = state_.leading() && !lost;
    changed_.notify_all();
    if (lost && !stopping_) {
      lock.unlock();
      return on_lost_();
    }
    changed_.wait_for(lock,
                      std::chrono::duration_cast<Duration>(options_.times.retry * spread(random)),
                      [&] { return stopping_; });
  }
  lock.unlock();
  if (state_.leading()) GiveUp();
}

Status LeaderElection::Round() {
  OrderedJson object = {{"apiVersion", kLeases.api_version}, {"kind", kLeases.kind}};
  auto known = client_.Get(kLeases, options_.lease);
  const bool exists = known.has_value();
  if (!exists && known.error().code != ErrorCode::kNotFound) {
    return tl::unexpected(known.error());
  }
  if (exists) {
    object = std::move(*known);
  } else {
    object["metadata"] = {{"name", options_.lease.name},
                          {"namespace", options_.lease.namespace_name}};
  }
  // Of the time before the request: the lease may last from then only.
  const TimePoint asked_at = clock_.Now();
  auto spec = state_.Decide(exists ? object.value("spec", OrderedJson()) : OrderedJson(), asked_at,
                            clock_.WallNow());
  if (!spec) return {};
  object["spec"] = std::move(*spec);
  const auto written = exists ? client_.Update(kLeases, object) : client_.Create(kLeases, object);
  if (!written) return tl::unexpected(written.error());
  state_.Written(asked_at);
  return {};
}

void LeaderElection::GiveUp() {
  auto object = client_.Get(kLeases, options_.lease);
  if (!object) return;
  const auto spec = state_.Release(object->value("spec", OrderedJson()), clock_.WallNow());
  if (!spec) return;
  (*object)["spec"] = *spec;
  if (const auto written = client_.Update(kLeases, *object); !written) {
    LogDebug("lease: " + written.error().message);
  }
}

}  // namespace everstep::kube
