// One failure with one root cause, as it is told to the slow loop, to status and to people.
#ifndef EVERSTEP_OPERATOR_RENDEZVOUS_INCIDENT_H_
#define EVERSTEP_OPERATOR_RENDEZVOUS_INCIDENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace everstep {

enum class IncidentCause {
  kExited,       // the process ended with an exit code
  kSignaled,     // the process was killed by a signal
  kHung,         // no progress within its budget
  kStartFailed,  // the process could not be started
  kVanished,     // the supervisor fell silent or its connection broke: pod or node gone
  kReplaced,     // a newer incarnation of the pod took over
};
// "exited", "signaled", "hung", "start-failed", "vanished", "replaced".
std::string_view IncidentCauseName(IncidentCause cause);

// Filled as the stages end; absent while unknown, or where a stage did not take place.
struct IncidentStages {
  std::optional<double> detect_seconds;   // last sign of life -> report
  std::optional<double> regroup_seconds;  // report -> all survivors regrouped
  std::optional<double> redo_seconds;     // regrouped -> next completed step
  std::optional<double> restart_seconds;  // order to start a replacement -> it is ready
  std::optional<double> rejoin_seconds;   // ready -> regrouped with the newcomer
};

struct Incident {
  uint64_t id = 0;  // counts from 1 within a session
  IncidentCause cause = IncidentCause::kExited;
  int rank = -1;
  std::vector<int> further_ranks;  // lost to the same cause: other ranks of the pod, victims
  int replica = -1;
  int incarnation = 0;
  std::string pod;
  std::string node;
  int exit_code = 0;  // kExited
  int signal = 0;     // kSignaled
  std::string last_words;
  bool was_member = false;           // false: it died before it had joined
  uint64_t generation_before = 0;    // 0: none
  uint64_t generation_after = 0;     // of the survivors; 0: not formed (yet)
  uint64_t generation_rejoined = 0;  // with the replacement; 0: not (yet)
  int64_t interrupted_step = 0;      // completed steps when it happened
  int64_t resumed_step = -1;         // completed steps when training went on; -1: not yet
  int64_t lost_steps = 0;            // interrupted_step - resumed_step, never below 0
  IncidentStages stages;
  std::string action;   // what the slow loop decided, with its reason
  bool closed = false;  // nothing more will be filled in
};

// "rank 2 (pod qwen-2-0) was killed by SIGKILL".
std::string DescribeIncident(const Incident& incident);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_RENDEZVOUS_INCIDENT_H_
