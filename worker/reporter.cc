#include "worker/reporter.h"

#include "common/log.h"

namespace everstep {

void LogReporter::Report(const wire::Message& message) {
  if (const auto* progress = std::get_if<wire::Progress>(&message)) {
    LogInfo("step", {{"step", progress->step},
                     {"of", progress->total_steps},
                     {"loss", progress->loss},
                     {"learning_rate", progress->learning_rate},
                     {"tokens_per_second", progress->tokens_per_second}});
  } else if (const auto* saved = std::get_if<wire::CheckpointSaved>(&message)) {
    if (saved->warning.empty()) {
      LogInfo("checkpoint saved", {{"step", saved->step}, {"path", saved->path}});
    } else {
      LogWarning(saved->warning, {{"step", saved->step}});
    }
  }
}

}  // namespace everstep
