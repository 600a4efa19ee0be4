// PID 1 of a pod: starts, watches, stops and restarts its training processes, and talks to
// rendezvous about them. It knows nothing of what they train.
#ifndef EVERSTEP_WORKER_SUPERVISOR_SUPERVISOR_H_
#define EVERSTEP_WORKER_SUPERVISOR_SUPERVISOR_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/wire.h"
#include "worker/supervisor/link.h"
#include "worker/supervisor/options.h"
#include "worker/supervisor/rank_process.h"

namespace everstep {

class Supervisor {
 public:
  // How often the heartbeats are looked at.
  static constexpr std::chrono::milliseconds kWatchInterval{3};
  // For the last news to reach rendezvous before this program ends.
  static constexpr std::chrono::seconds kFlushAtEnd{5};

  explicit Supervisor(SupervisorOptions options);
  ~Supervisor();

  // Runs until there is nothing left to do. The exit code: 0 when all processes finished; the
  // process's own code (2 or 3) after Fatal; else 1.
  int Run();

 private:
  void AwaitSignal();
  void OnSignal(int signal);
  void Reap();
  void Watch();
  void OnRankMessage(const wire::Message& message);
  void OnRendezvousMessage(const wire::Message& message);
  void BeginStop(int signal, Duration grace, const std::string& reason);
  void KillAll();
  void EndIfDone();
  int ExitCode() const;

  const SupervisorOptions options_;
  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_;
  boost::asio::steady_timer watch_timer_;
  boost::asio::steady_timer grace_timer_;
  std::vector<std::unique_ptr<RankProcess>> processes_;
  std::unique_ptr<RendezvousLink> link_;  // null without a rendezvous
  bool stopping_ = false;
  bool ending_ = false;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_SUPERVISOR_SUPERVISOR_H_
