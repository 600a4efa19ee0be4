// Writes facts to the jobs' statuses, off the threads that learn them.
//
// What is posted for one job while a write of it is under way goes into the next one together: one
// request to the API server however many facts there are. Changes of one job are applied in the
// order in which they were posted; jobs do not wait for each other.
#ifndef EVERSTEP_OPERATOR_SHELL_STATUS_WRITER_H_
#define EVERSTEP_OPERATOR_SHELL_STATUS_WRITER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "common/result.h"
#include "operator/api/object_client.h"

namespace everstep {

class StatusWriter {
 public:
  // Changes the newest status, an object; false: leaves it as it is. Called again on the newer one
  // when somebody else wrote meanwhile.
  using Change = std::function<bool(OrderedJson& status)>;
  using Done = std::function<void(const Status&)>;

  static constexpr size_t kMaxPending = 1000;  // per job
  static constexpr int kAttempts = 20;         // against conflicts
  static constexpr std::chrono::seconds kRetry{1};

  // `objects` is borrowed. Without threads every post is written before it returns; nothing may be
  // posted from a Change or a Done then, and what could not be written waits for the next post.
  StatusWriter(ObjectClient& objects, int threads);
  // What is still pending is dropped (its `done` is told so); a write under way is waited for.
  ~StatusWriter();
  StatusWriter(const StatusWriter&) = delete;
  StatusWriter& operator=(const StatusWriter&) = delete;

  // `done` is called once, from any thread, inline too. A change without `done` that the API server
  // could not take is written again until it can, unless the job is gone.
  void Post(const std::string& job, Change change, Done done = nullptr);
  // Posts it in the place of an earlier one with this `slot` that was not written yet.
  void PostNewest(const std::string& job, const std::string& slot, Change change);
  // Posts it and waits. Not from a Change or a Done.
  Status Write(const std::string& job, Change change);

 private:
  struct Entry {
    std::string slot;
    Change change;
    Done done;
  };
  struct Job {
    std::deque<Entry> pending;
    bool under_way = false;
    std::optional<TimePoint> not_before;
  };

  void Add(const std::string& job, Entry entry);
  void Run();
  // The next job to be written, or "" when the writer ends.
  std::string Next(std::unique_lock<std::mutex>& lock);
  void WriteOne(const std::string& job, std::unique_lock<std::mutex>& lock);
  Status Apply(const std::string& job, const std::deque<Entry>& entries);
  // Tells those who wait; returns what is to be written again.
  static std::deque<Entry> Conclude(const std::string& job, std::deque<Entry> entries,
                                    const Status& written);

  ObjectClient& objects_;
  const SystemClock clock_;  // for pauses alone
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Job> jobs_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_SHELL_STATUS_WRITER_H_
