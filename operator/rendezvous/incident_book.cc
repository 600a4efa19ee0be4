#include "operator/rendezvous/incident_book.h"

#include <algorithm>
#include <utility>

namespace everstep {

uint64_t IncidentBook::Open(TimePoint now, Incident incident) {
  if (entries_.size() >= kMaxOpen) {
    const auto oldest = std::find_if(entries_.begin(), entries_.end(),
                                     [](const Entry& entry) { return !entry.incident.closed; });
    if (oldest != entries_.end()) {
      oldest->incident.closed = true;
      oldest->changed = true;
    }
  }
  incident.id = next_id_++;
  AwaitAgain(incident.rank);
  Entry& entry = entries_.emplace_back();
  entry.missing.insert(incident.rank);
  entry.incident = std::move(incident);
  entry.reported = now;
  return entry.incident.id;
}

void IncidentBook::AwaitAgain(int rank) {
  for (Entry& entry : entries_) {
    if (!LostIn(entry.incident, rank) || entry.incident.stages.rejoin_seconds) continue;
    entry.missing.insert(rank);
    entry.ready.reset();
    entry.incident.stages.restart_seconds.reset();
  }
}

bool IncidentBook::LostIn(const Incident& incident, int rank) {
  return incident.rank == rank || std::ranges::count(incident.further_ranks, rank) > 0;
}

uint64_t IncidentBook::RootCause(TimePoint now, Duration window) const {
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    if (it->incident.was_member && now - it->reported <= window) return it->incident.id;
  }
  return 0;
}

const Incident* IncidentBook::Get(uint64_t id) const {
  for (const Entry& entry : entries_) {
    if (entry.incident.id == id) return &entry.incident;
  }
  return nullptr;
}

void IncidentBook::AddRank(uint64_t id, int rank) {
  AwaitAgain(rank);
  for (Entry& entry : entries_) {
    if (entry.incident.id != id || LostIn(entry.incident, rank)) continue;
    entry.incident.further_ranks.push_back(rank);
    entry.missing.insert(rank);
    entry.ready.reset();
    entry.incident.stages.restart_seconds.reset();
    entry.changed = true;
  }
}

IncidentBook::Entry* IncidentBook::OfRank(int rank) {
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    if (LostIn(it->incident, rank)) return &*it;
  }
  return nullptr;
}

void IncidentBook::SetLastWords(int rank, const std::string& text, int exit_code, int signal) {
  Entry* entry = OfRank(rank);
  // A victim's last words say nothing about the cause.
  if (entry == nullptr || entry->incident.rank != rank) return;
  Incident& incident = entry->incident;
  incident.last_words = text;
  const bool ended_by_itself =
      incident.cause == IncidentCause::kExited || incident.cause == IncidentCause::kSignaled;
  if (ended_by_itself) {
    incident.cause = signal != 0 ? IncidentCause::kSignaled : IncidentCause::kExited;
    incident.exit_code = exit_code;
    incident.signal = signal;
  }
  entry->changed = true;
}

void IncidentBook::SetAction(int rank, const std::string& action) {
  Entry* entry = OfRank(rank);
  if (entry == nullptr || entry->incident.rank != rank) return;
  entry->incident.action = action;
  entry->changed = true;
}

void IncidentBook::Formed(uint64_t generation) {
  for (Entry& entry : entries_) {
    if (entry.incident.closed || entry.incident.generation_after != 0) continue;
    entry.incident.generation_after = generation;
    entry.changed = true;
  }
}

void IncidentBook::AllRegrouped(TimePoint now, uint64_t generation, int64_t step,
                                const std::vector<int>& ranks) {
  for (Entry& entry : entries_) {
    Incident& incident = entry.incident;
    if (incident.closed || incident.generation_after == 0) continue;
    if (!entry.regrouped) {
      entry.regrouped = now;
      entry.changed = true;
      if (incident.was_member) {
        incident.stages.regroup_seconds = Seconds(now - entry.reported);
        incident.resumed_step = step;
        incident.lost_steps = std::max<int64_t>(0, incident.interrupted_step - step);
      }
    }
    const auto is_back = [&](int rank) { return std::ranges::count(ranks, rank) > 0; };
    const bool all_back =
        is_back(incident.rank) && std::ranges::all_of(incident.further_ranks, is_back);
    if (all_back && entry.ready && !incident.stages.rejoin_seconds) {
      incident.stages.rejoin_seconds = Seconds(now - *entry.ready);
      incident.generation_rejoined = generation;
      entry.changed = true;
    }
    CloseIfComplete(entry);
  }
}

void IncidentBook::StepCompleted(TimePoint now) {
  for (Entry& entry : entries_) {
    if (!entry.regrouped || entry.incident.stages.redo_seconds || !entry.incident.was_member)
      continue;
    entry.incident.stages.redo_seconds = Seconds(now - *entry.regrouped);
    entry.changed = true;
    CloseIfComplete(entry);
  }
}

void IncidentBook::RestartOrdered(TimePoint now, int rank) {
  for (Entry& entry : entries_) {
    if (LostIn(entry.incident, rank) && !entry.restart_ordered) entry.restart_ordered = now;
  }
}

void IncidentBook::RankReady(TimePoint now, int rank) {
  for (Entry& entry : entries_) {
    if (entry.missing.erase(rank) == 0 || !entry.missing.empty()) continue;
    entry.ready = now;
    entry.changed = true;
    if (entry.restart_ordered) {
      entry.incident.stages.restart_seconds = Seconds(now - *entry.restart_ordered);
    }
  }
}

void IncidentBook::CloseIfComplete(Entry& entry) {
  const IncidentStages& stages = entry.incident.stages;
  if (!stages.rejoin_seconds) return;
  if (entry.incident.was_member && !stages.redo_seconds) return;
  entry.incident.closed = true;
  entry.changed = true;
}

void IncidentBook::CloseAll() {
  for (Entry& entry : entries_) {
    entry.incident.closed = true;
    entry.changed = true;
  }
}

std::vector<Incident> IncidentBook::TakeChanged() {
  std::vector<Incident> changed;
  for (Entry& entry : entries_) {
    if (std::exchange(entry.changed, false)) changed.push_back(entry.incident);
  }
  std::erase_if(entries_, [](const Entry& entry) { return entry.incident.closed; });
  return changed;
}

}  // namespace everstep
