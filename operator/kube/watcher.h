// Keeps a store's objects of one kind up to date, with a thread of its own.
#ifndef EVERSTEP_OPERATOR_KUBE_WATCHER_H_
#define EVERSTEP_OPERATOR_KUBE_WATCHER_H_

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "common/clock.h"
#include "operator/kube/api_client.h"
#include "operator/kube/store.h"
#include "operator/kube/watch_state.h"

namespace everstep::kube {

class Watcher {
 public:
  struct Options {
    ResourceType type;
    std::string namespace_name = {};  // "" = all
    std::string label_selector = {};
  };

  // Everything is borrowed and outlives the watcher.
  Watcher(const Options& options, ApiClient& client, Store& store, const Clock& clock);
  // Ends within a list request's time; a stream, and waiting for one, are cancelled.
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // The store has had everything at least once.
  bool synced() const { return synced_; }

 private:
  void Run();
  void List(const std::string& more);
  void Follow(const WatchState::FollowFrom& from);
  void Read(LineStream& stream);
  void Apply(WatchState::Change change);
  void Pause(Duration time);
  bool Ending();

  const Options options_;
  ApiClient& client_;
  Store& store_;
  const Clock& clock_;
  WatchState state_;
  std::atomic<bool> synced_ = false;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false;
  std::unique_ptr<LineStream> stream_;  // while one is read; cancelled under the mutex
  std::thread thread_;
};

}  // namespace everstep::kube

#endif  // EVERSTEP_OPERATOR_KUBE_WATCHER_H_
