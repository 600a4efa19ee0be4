// Chooses the template of a training file and makes the tokenizer fit it.
#ifndef EVERSTEP_WORKER_DATA_TEMPLATE_SETUP_H_
#define EVERSTEP_WORKER_DATA_TEMPLATE_SETUP_H_

#include <string>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "worker/config/train_config.h"
#include "worker/data/chat_format.h"
#include "worker/text/tokenizer.h"

namespace everstep {

struct TemplateSetup {
  ChatFormat format;
  int new_tokens = 0;
  bool resize_vocab = false;  // as in the file, or because its tokens are new
  std::vector<std::string> warnings;
};

// Adds the training file's own tokens, finds the template, replaces eos and pad token, adds the
// stop words, and gives the tokenizer a chat template when it has none or the template says so.
// Errors: unknown template or tool format (with the nearest known one), a template whose special
// tokens the tokenizer lacks.
Result<TemplateSetup> SetUpTemplate(const TrainConfig& config, Tokenizer& tokenizer,
                                    WallTime today);

// A Jinja chat template that writes conversations as `format` does, without tools.
std::string JinjaChatTemplate(const ChatFormat& format, const Tokenizer& tokenizer);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_TEMPLATE_SETUP_H_
