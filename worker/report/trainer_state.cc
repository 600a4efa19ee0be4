#include "worker/report/trainer_state.h"

#include <map>

#include "common/json.h"
#include "worker/report/python_json.h"

namespace everstep {
namespace {

// Python sorts keys; a map does so too.
OrderedJson RecordJson(const LogRecord& record) {
  std::map<std::string, OrderedJson> sorted;
  for (const auto& [key, value] : record.values) sorted[key] = value;
  sorted["epoch"] = record.epoch;
  sorted["step"] = record.step;
  if (record.input_tokens > 0) sorted["num_input_tokens_seen"] = record.input_tokens;
  OrderedJson json = OrderedJson::object();
  for (auto& [key, value] : sorted) json[key] = std::move(value);
  return json;
}

OrderedJson ControlJson(const TrainerStateFacts& facts) {
  OrderedJson arguments;
  arguments["should_epoch_stop"] = false;
  arguments["should_evaluate"] = false;
  arguments["should_log"] = false;
  arguments["should_save"] = facts.should_save;
  arguments["should_training_stop"] = facts.global_step >= facts.max_steps;
  OrderedJson control;
  control["args"] = std::move(arguments);
  control["attributes"] = OrderedJson::object();
  return OrderedJson{{"TrainerControl", std::move(control)}};
}

template <typename T>
OrderedJson OrNull(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

}  // namespace

std::string TrainerStateJson(const TrainerStateFacts& facts, const LogHistory& history) {
  OrderedJson log = OrderedJson::array();
  for (const LogRecord& record : history.records()) log.push_back(RecordJson(record));
  OrderedJson state;
  state["best_global_step"] = OrNull(facts.best_global_step);
  state["best_metric"] = OrNull(facts.best_metric);
  state["best_model_checkpoint"] = OrNull(facts.best_model_checkpoint);
  state["epoch"] = facts.epoch;
  state["eval_steps"] = facts.eval_steps;
  state["global_step"] = facts.global_step;
  state["is_hyper_param_search"] = false;
  state["is_local_process_zero"] = true;
  state["is_world_process_zero"] = true;
  state["log_history"] = std::move(log);
  state["logging_steps"] = facts.logging_steps;
  state["max_steps"] = facts.max_steps;
  state["num_input_tokens_seen"] = facts.input_tokens_seen;
  state["num_train_epochs"] = facts.num_train_epochs;
  state["save_steps"] = facts.save_steps;
  state["stateful_callbacks"] = ControlJson(facts);
  state["total_flos"] = facts.total_flos;
  state["train_batch_size"] = facts.train_batch_size;
  state["trial_name"] = nullptr;
  state["trial_params"] = nullptr;
  return PythonJson(state, 2) + "\n";
}

}  // namespace everstep
