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
  // The newest open incident that struck `generation` within `window` before `now`; null if none.
  const Incident* RootCause(TimePoint now, uint64_t generation, Duration window) const;
  // The newest open incident in which `rank` was lost; null if none.
  const Incident* OfRank(int rank) const;
  void AddRank(uint64_t id, int rank);

  void SetLastWords(int rank, const std::string& text, int exit_code, int signal);
  void SetAction(uint64_t id, const std::string& action);

  // What happened, for the stages.
  void Formed(uint64_t generation, const std::vector<int>& ranks);
  void AllRegrouped(TimePoint now, uint64_t generation, int64_t step,
                    const std::vector<int>& ranks);
  void StepCompleted(TimePoint now, uint64_t generation);
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
  Entry* Find(int rank);
  static void CloseIfComplete(Entry& entry);

  std::vector<Entry> entries_;
  uint64_t next_id_ = 1;
};

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_RENDEZVOUS_INCIDENT_BOOK_H_
