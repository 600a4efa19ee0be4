// The incidents of one session, and how their stages get filled. Pure.
#ifndef EVERSTEP_OPERATOR_RENDEZVOUS_INCIDENT_BOOK_H_
#define EVERSTEP_OPERATOR_RENDEZVOUS_INCIDENT_BOOK_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "operator/rendezvous/incident.h"

namespace everstep {

class IncidentBook {
 public:
  // Open ones; when there are more, the oldest is closed as it is.
  static constexpr size_t kMaxOpen = 64;

  // A new incident, reported at `now`. Returns its id.
  uint64_t Open(TimePoint now, Incident incident);
  // Id of the newest incident that cost a member, reported within `window` before `now`; 0: none.
  uint64_t RootCause(TimePoint now, Duration window) const;
  // Null once it is closed and taken.
  const Incident* Get(uint64_t id) const;
  void AddRank(uint64_t id, int rank);

  void SetLastWords(int rank, const std::string& text, int exit_code, int signal);
  void SetAction(int rank, const std::string& action);

  // What happened, for the stages.
  void Formed(uint64_t generation);
  void AllRegrouped(TimePoint now, uint64_t generation, int64_t step,
                    const std::vector<int>& ranks);
  void StepCompleted(TimePoint now);
  void RestartOrdered(TimePoint now, int rank);
  void RankReady(TimePoint now, int rank);
  // No stage will be filled any more: the job has ended.
  void CloseAll();

  // Incidents that changed since the last call, oldest first. Closed ones are forgotten.
  std::vector<Incident> TakeChanged();

 private:
  struct Entry {
    Incident incident;
    TimePoint reported{};
    std::optional<TimePoint> regrouped;
    std::optional<TimePoint> restart_ordered;
    std::optional<TimePoint> ready;
    std::set<int> missing;  // ranks that are not back yet
    bool changed = true;
  };
  // The newest one in which `rank` was lost; null if none.
  Entry* OfRank(int rank);
  // `rank` was lost (again): what it was to bring back is still missing.
  void AwaitAgain(int rank);
  static bool LostIn(const Incident& incident, int rank);
  static void CloseIfComplete(Entry& entry);

  std::vector<Entry> entries_;
  uint64_t next_id_ = 1;
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_RENDEZVOUS_INCIDENT_BOOK_H_
