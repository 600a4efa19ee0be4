#include "operator/kube/watcher.h"

#include <random>
#include <utility>

#include "common/log.h"

namespace everstep::kube {
namespace {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

std::function<double()> RandomFraction() {
  return [generator = std::mt19937(std::random_device{}())]() mutable {
    return std::uniform_real_distribution<double>(0, 1)(generator);
  };
}

}  // namespace

Watcher::Watcher(const Options& options, ApiClient& client, Store& store, const Clock& clock)
    : options_(options), client_(client), store_(store), clock_(clock), state_(RandomFraction()) {
  thread_ = std::thread([this] { Run(); });
}

Watcher::~Watcher() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    if (stream_) stream_->Cancel();
  }
  stop_.request_stop();
  ended_.notify_all();
  thread_.join();
}

bool Watcher::Ending() {
  const std::lock_guard lock(mutex_);
  return ending_;
}

void Watcher::Run() {
  while (!Ending()) {
    std::visit(Overloaded{
                   [&](const WatchState::ListNext& list) { List(list.more); },
                   [&](const WatchState::FollowFrom& from) { Follow(from); },
                   [&](const WatchState::PauseFor& pause) { Pause(pause.time); },
               },
               state_.Next());
  }
}

void Watcher::List(const std::string& more) {
  auto page = client_.List(options_.type,
                           {.namespace_name = options_.namespace_name,
                            .label_selector = options_.label_selector,
                            .more = more},
                           stop_.get_token());
  if (!page) {
    LogWarning("cannot list: " + page.error().message, {{"kind", std::string(options_.type.kind)}});
    return state_.OnError(page.error(), std::nullopt, clock_.Now());
  }
  if (auto change = state_.OnPage(std::move(*page))) Apply(std::move(*change));
  synced_ = state_.synced();
}

void Watcher::Follow(const WatchState::FollowFrom& from) {
  auto opened = client_.Watch(options_.type,
                              {.namespace_name = options_.namespace_name,
                               .label_selector = options_.label_selector,
                               .resource_version = from.resource_version,
                               .timeout_seconds = from.timeout_seconds},
                              stop_.get_token());
  if (!opened) return state_.OnError(opened.error(), std::nullopt, clock_.Now());
  if (!opened->stream) {
    return state_.OnError(ErrorOf(opened->response), opened->response.retry_after, clock_.Now());
  }
  LineStream& stream = *opened->stream;
  {
    const std::lock_guard lock(mutex_);
    stream_ = std::move(opened->stream);
    if (ending_) stream_->Cancel();
  }
  Read(stream);
  const std::lock_guard lock(mutex_);
  stream_.reset();
}

void Watcher::Read(LineStream& stream) {
  const TimePoint opened_at = clock_.Now();
  bool any = false;
  while (true) {
    const auto line = stream.ReadLine();
    if (!line) {
      LogDebug("watch ended",
               {{"kind", std::string(options_.type.kind)}, {"reason", line.error().message}});
      // One that ends at once without a word is an error, or it would be asked for without a pause.
      const bool useless = !any && clock_.Now() - opened_at < std::chrono::seconds(1);
      if (useless) state_.OnError(line.error(), std::nullopt, clock_.Now());
      return;
    }
    any = true;
    auto change = state_.OnLine(*line, clock_.Now());
    if (!change) return LogDebug("watch: " + change.error().message);
    if (*change) Apply(std::move(**change));
  }
}

void Watcher::Apply(WatchState::Change change) {
  std::visit(Overloaded{
                 [&](WatchState::Changed& changed) { store_.Put(std::move(changed.object)); },
                 [&](WatchState::Removed& removed) { store_.Remove(removed.object); },
                 [&](WatchState::Listed& listed) {
                   store_.Replace(std::string(options_.type.kind), options_.namespace_name,
                                  std::move(listed.objects), listed.resource_version);
                 },
             },
             change);
}

void Watcher::Pause(Duration time) {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, time, [&] { return ending_; });
}

}  // namespace everstep::kube
