#include "operator/core/node_strikes.h"

#include "common/clock.h"

namespace everstep {
namespace {

constexpr char kStrikes[] = "nodeStrikes";
constexpr size_t kNodesKept = 64;

WallTime At(int64_t unix_seconds) { return WallTime{std::chrono::seconds(unix_seconds)}; }

// Of one node, within the window.
OrderedJson Recent(const OrderedJson& strikes, int64_t since) {
  OrderedJson recent = OrderedJson::array();
  for (const OrderedJson& at : strikes) {
    if (at.get<int64_t>() >= since) recent.push_back(at);
  }
  return recent;
}

}  // namespace

void StrikeNode(OrderedJson& status, const std::string& node, int64_t now_unix_seconds) {
  if (node.empty()) return;
  OrderedJson& strikes = status[kStrikes];
  if (!strikes.contains(node) && strikes.size() >= kNodesKept) strikes.erase(strikes.begin());
  strikes[node].push_back(now_unix_seconds);
}

NodeVerdicts JudgeNodes(OrderedJson& status, const RecoverySpec& policy, int64_t now_unix_seconds) {
  NodeVerdicts verdicts;
  OrderedJson kept = OrderedJson::object();
  OrderedJson excluded = OrderedJson::array();
  if (status.contains(kStrikes)) {
    for (const auto& [node, strikes] : status[kStrikes].items()) {
      const OrderedJson recent = Recent(strikes, now_unix_seconds - policy.window_seconds);
      if (recent.empty()) continue;
      kept[node] = recent;
      const size_t faults = recent.size();
      if (faults < static_cast<size_t>(policy.exclude_node_after)) {
        verdicts.avoided.push_back(node);
        continue;
      }
      verdicts.excluded.push_back(node);
      // Back as soon as one fault fewer than the limit is within the window.
      const size_t decisive = faults - static_cast<size_t>(policy.exclude_node_after);
      const int64_t until = recent[decisive].get<int64_t>() + policy.window_seconds;
      excluded.push_back({{"name", node}, {"faults", faults}, {"until", FormatTime(At(until))}});
    }
  }
  status.erase(kStrikes);
  status.erase("excludedNodes");
  if (!kept.empty()) status[kStrikes] = kept;
  if (!excluded.empty()) status["excludedNodes"] = excluded;
  return verdicts;
}

}  // namespace everstep
