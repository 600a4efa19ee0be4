// The TrainingJob as typed values: spec with every default filled in, and status.
#ifndef EVERSTEP_OPERATOR_API_TRAINING_JOB_H_
#define EVERSTEP_OPERATOR_API_TRAINING_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "operator/api/document.h"
#include "operator/api/object_key.h"

namespace everstep {

struct ElasticSpec {
  int min_replicas = 1;
  std::string on_shrink = "KeepGlobalBatch";
  std::string lr_scaling = "None";

  bool operator==(const ElasticSpec&) const = default;
};

struct RendezvousSpec {
  int port = 29500;
  std::string network_interface = "auto";
  bool host_network = false;
  int timeout_seconds = 600;

  bool operator==(const RendezvousSpec&) const = default;
};

struct CheckpointSpec {
  std::string claim_name;             // empty: from the template, or the job's own
  OrderedJson claim_template;         // null: none
  std::string path = "/checkpoints";  // where the claim is mounted
  std::optional<int> keep_last;
  std::optional<int> milestone_steps;
  std::optional<int> interval_steps;

  bool operator==(const CheckpointSpec&) const = default;
};

struct RecoverySpec {
  int max_restarts = 10;  // within the window
  int window_seconds = 21600;
  int max_no_progress = 3;  // failures in a row in the same step
  int in_place_before_recreate = 3;
  double backoff_initial_seconds = 1;  // from the second failure without progress
  double backoff_max_seconds = 300;
  std::vector<int> fatal_exit_codes{2, 3, 78};
  int exclude_node_after = 2;

  bool operator==(const RecoverySpec&) const = default;
};

struct HealthSpec {
  double heartbeat_timeout_seconds = 1;
  std::optional<int> step_timeout_seconds;  // absent: learned
  int startup_deadline_seconds = 1800;
  int stuck_terminating_seconds = 60;

  bool operator==(const HealthSpec&) const = default;
};

struct SchedulingSpec {
  std::string gang = "None";
  std::string priority_class_name;
  std::string topology_key;  // replicas are kept near each other by this label of nodes

  bool operator==(const SchedulingSpec&) const = default;
};

struct TrainingJobSpec {
  int replicas = 1;
  int processes_per_replica = 1;  // at least gpusPerReplica
  int gpus_per_replica = 0;
  std::optional<int> threads_per_process;  // absent: chosen at the job's creation
  ElasticSpec elastic;
  int spares = 0;
  std::string image;
  std::vector<std::string> command, args;
  OrderedJson env = OrderedJson::array();
  OrderedJson resources;
  OrderedJson pod_template;
  OrderedJson train;  // null: none
  std::string train_config_map, train_config_map_key;
  RendezvousSpec rendezvous;
  CheckpointSpec checkpoint;
  RecoverySpec recovery;
  HealthSpec health;
  bool suspend = false;
  std::optional<int> active_deadline_seconds;
  std::optional<int> ttl_seconds_after_finished;
  std::string clean_pod_policy = "Running";
  SchedulingSpec scheduling;
  std::string network_policy = "Isolated";
  std::string managed_by;  // "" or kManager: this operator's

  int world_size() const { return replicas * processes_per_replica; }
  bool operator==(const TrainingJobSpec&) const = default;
};

struct TrainingJob {
  std::string namespace_name;  // "" in the embedded default
  std::string name;
  std::string uid;
  int64_t generation = 1;
  TrainingJobSpec spec;

  std::string key() const { return MakeKey(namespace_name, name); }
};

// Whether the template sends all pods to the same node.
bool IsBoundToOneNode(const TrainingJobSpec& spec);

// Every problem of the manifest in one error, a line each, with its place and the remedy.
Result<TrainingJob> ParseTrainingJob(const Document& document);
// An object that was checked before (from the store or the API server).
Result<TrainingJob> TrainingJobFromJson(const OrderedJson& object);

}  // namespace everstep

#endif  // EVERSTEP_OPERATOR_API_TRAINING_JOB_H_
