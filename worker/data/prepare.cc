#include "worker/data/prepare.h"

#include <algorithm>
#include <filesystem>

#include "worker/data/convert.h"
#include "worker/data/dataset_info.h"
#include "worker/data/load.h"
#include "worker/data/mix.h"
#include "worker/data/packing.h"
#include "worker/data/pretrain.h"
#include "worker/data/supervised.h"
#include "worker/data/template_setup.h"

namespace everstep {
namespace {

using Conversations = std::vector<const Conversation*>;

bool IsUsable(const Conversation& conversation, Stage stage) {
  if (stage == Stage::kPt) return !conversation.prompt.empty();
  return conversation.prompt.size() % 2 == 1 && conversation.response.size() == 1;
}

// Turns rows into token ids for one training file; counts what it drops.
class Processor {
 public:
  Processor(const TrainConfig& config, const Tokenizer& tokenizer, const ChatFormat& format,
            WallTime today, PreparedData& prepared)
      : config_(config),
        tokenizer_(tokenizer),
        format_(format),
        today_(today),
        prepared_(prepared) {}

  // `what` names the set in messages: "training", "evaluation".
  Result<std::vector<Example>> Process(const Conversations& rows, const std::string& what) {
    ASSIGN_OR_RETURN(const Conversations usable, Usable(rows, what));
    if (config_.finetuning.stage == Stage::kPt) return ProcessText(rows, what);
    ASSIGN_OR_RETURN(std::vector<Example> examples,
                     EncodeSupervised(format_, tokenizer_, usable, Supervised()));
    if (!config_.data.packing) return examples;
    return Pack(rows, std::move(examples), what);
  }

 private:
  // Packing given in the file costs one id of the length, as in LLaMA-Factory.
  int64_t CutoffLength() const {
    return config_.data.cutoff_len - (config_.data.packing_given ? 1 : 0);
  }

  SupervisedOptions Supervised() const {
    return {.cutoff_len = CutoffLength(),
            .mask_history = config_.data.mask_history,
            .train_on_prompt = config_.data.train_on_prompt,
            .today = today_};
  }

  std::vector<std::pair<size_t, size_t>> Batches(size_t rows) const {
    return MapBatches(rows, static_cast<size_t>(config_.data.preprocessing_num_workers),
                      static_cast<size_t>(config_.data.preprocessing_batch_size));
  }

  Result<Conversations> Usable(const Conversations& rows, const std::string& what) {
    Conversations usable;
    const Conversation* first_dropped = nullptr;
    for (const Conversation* row : rows) {
      if (IsUsable(*row, config_.finetuning.stage)) {
        usable.push_back(row);
      } else if (first_dropped == nullptr) {
        first_dropped = row;
      }
    }
    if (first_dropped == nullptr) return usable;
    const size_t dropped = rows.size() - usable.size();
    const std::string problem =
        std::to_string(dropped) + " of " + std::to_string(rows.size()) + " " + what +
        " examples have no answer or turns that do not alternate between user and assistant "
        "(first: " +
        first_dropped->Where() + ")";
    if (usable.empty()) {
      return InvalidArgument(problem +
                             ": nothing is left; check the data, and 'formatting', "
                             "'columns' and 'tags' in dataset_info.json");
    }
    prepared_.dropped_examples += static_cast<int64_t>(dropped);
    prepared_.warnings.push_back(problem + ": dropped");
    return usable;
  }

  Result<std::vector<Example>> ProcessText(const Conversations& rows, const std::string& what) {
    const PretrainOptions options = {.length = CutoffLength(),
                                     .packing = config_.data.packing,
                                     .end_text = config_.data.template_name == "llama3"
                                                     ? "<|end_of_text|>"
                                                     : *tokenizer_.eos_token(),
                                     .pad_id = prepared_.pad_id};
    std::vector<Example> examples;
    for (const auto& [begin, end] : Batches(rows.size())) {
      std::vector<std::string_view> texts;
      for (size_t i = begin; i < end; ++i) {
        if (IsUsable(*rows[i], Stage::kPt)) texts.push_back(rows[i]->prompt[0].content);
      }
      for (Example& example : EncodePretrain(tokenizer_, texts, options)) {
        examples.push_back(std::move(example));
      }
    }
    if (examples.empty()) {
      return InvalidArgument("cutoff_len: all " + what +
                             " text together is shorter than one block "
                             "of " +
                             std::to_string(options.length) +
                             " tokens; lower cutoff_len, add text, or set 'packing: false'");
    }
    return examples;
  }

  // `examples` are those of the usable rows, in order; packing works on ranges of all rows.
  Result<std::vector<Example>> Pack(const Conversations& rows, std::vector<Example> examples,
                                    const std::string& what) {
    const PackingOptions options = {.row_length = config_.data.cutoff_len,
                                    .neat = config_.data.neat_packing,
                                    .pad_id = prepared_.pad_id};
    std::vector<Example> packed;
    int64_t too_long = 0;
    size_t next = 0;
    for (const auto& [begin, end] : Batches(rows.size())) {
      std::vector<Example> batch;
      for (size_t i = begin; i < end; ++i) {
        if (IsUsable(*rows[i], Stage::kSft)) batch.push_back(std::move(examples[next++]));
      }
      PackedRows result = PackExamples(std::move(batch), options);
      too_long += result.too_long;
      for (Example& row : result.rows) packed.push_back(std::move(row));
    }
    prepared_.dropped_examples += too_long;
    if (packed.empty()) {
      return InvalidArgument("cutoff_len: no " + what + " example fits into " +
                             std::to_string(options.row_length - 1) + " tokens; raise cutoff_len");
    }
    if (too_long > 0) {
      prepared_.warnings.push_back(std::to_string(too_long) + " " + what +
                                   " examples are longer than cutoff_len - 1: dropped");
    }
    return packed;
  }

  const TrainConfig& config_;
  const Tokenizer& tokenizer_;
  const ChatFormat& format_;
  WallTime today_;
  PreparedData& prepared_;
};

Conversations Pick(const LoadedSets& sets, const std::vector<RowReference>& rows) {
  Conversations picked;
  picked.reserve(rows.size());
  for (const RowReference& row : rows) picked.push_back(&sets[row.set].rows[row.row]);
  return picked;
}

Conversations Merged(const TrainConfig& config, const LoadedSets& sets) {
  std::vector<size_t> sizes;
  for (const LoadedSet& set : sets) sizes.push_back(set.rows.size());
  return Pick(sets, Mix(sizes, config.data.mix_strategy, config.data.interleave_probs,
                        static_cast<uint64_t>(config.training.seed)));
}

Conversations Select(const Conversations& from, const std::vector<size_t>& indices) {
  Conversations selected;
  selected.reserve(indices.size());
  for (const size_t index : indices) selected.push_back(from[index]);
  return selected;
}

Status CheckOptions(const TrainConfig& config) {
  if (config.data.cutoff_len < (config.data.packing_given ? 2 : 1)) {
    return InvalidArgument("cutoff_len: must be at least 1 (2 with packing), is " +
                           std::to_string(config.data.cutoff_len));
  }
  if (!config.data.interleave_probs.empty() &&
      config.data.interleave_probs.size() != config.data.dataset.size()) {
    return InvalidArgument("interleave_probs: needs one value per data set (" +
                           std::to_string(config.data.dataset.size()) + "), has " +
                           std::to_string(config.data.interleave_probs.size()));
  }
  const std::string& tokenized = config.data.tokenized_path;
  if (!tokenized.empty() && std::filesystem::exists(tokenized) &&
      !std::filesystem::is_empty(tokenized)) {
    return InvalidArgument("tokenized_path: '" + tokenized +
                           "' holds a data set that another program tokenized, which cannot be "
                           "read; remove the key and name the data sets with 'dataset'");
  }
  return {};
}

Status ProcessTraining(const TrainConfig& config, const LoadedSets& sets, Processor& processor,
                       PreparedData& prepared) {
  if (sets.empty()) return {};
  const Conversations rows = Merged(config, sets);
  if (config.data.val_size <= 1e-6) {
    ASSIGN_OR_RETURN(prepared.train, processor.Process(rows, "training"));
    return {};
  }
  ASSIGN_OR_RETURN(const TrainEvalSplit split,
                   SplitTrainEval(rows.size(), config.data.val_size,
                                  static_cast<uint64_t>(config.training.seed)));
  ASSIGN_OR_RETURN(prepared.train, processor.Process(Select(rows, split.train), "training"));
  ASSIGN_OR_RETURN(std::vector<Example> eval,
                   processor.Process(Select(rows, split.eval), "evaluation"));
  prepared.eval.emplace_back("", std::move(eval));
  return {};
}

Status ProcessEvaluation(const TrainConfig& config, const LoadedSets& sets, Processor& processor,
                         PreparedData& prepared) {
  if (sets.empty()) return {};
  if (!config.data.eval_on_each_dataset) {
    ASSIGN_OR_RETURN(std::vector<Example> eval,
                     processor.Process(Merged(config, sets), "evaluation"));
    prepared.eval.emplace_back("", std::move(eval));
    return {};
  }
  for (const LoadedSet& set : sets) {
    Conversations rows;
    for (const Conversation& row : set.rows) rows.push_back(&row);
    ASSIGN_OR_RETURN(std::vector<Example> eval, processor.Process(rows, "evaluation"));
    prepared.eval.emplace_back(set.name, std::move(eval));
  }
  return {};
}

}  // namespace

Result<PreparedData> PrepareData(const TrainConfig& config, Tokenizer& tokenizer, WallTime today) {
  RETURN_IF_ERROR(CheckOptions(config));
  PreparedData prepared;
  ASSIGN_OR_RETURN(const TemplateSetup setup, SetUpTemplate(config, tokenizer, today));
  const bool sft = config.finetuning.stage == Stage::kSft;
  prepared.pad_id = *tokenizer.pad_id();
  prepared.pad_multiple = sft && config.training.do_train ? 8 : 1;
  prepared.packed = sft && config.data.packing;
  prepared.neat_packed = sft && config.data.neat_packing;
  prepared.new_tokens = setup.new_tokens;
  prepared.resize_vocab = setup.resize_vocab;
  prepared.template_name = setup.format.name;
  prepared.warnings = setup.warnings;

  // One generator for all data sets, as each draws from where the last one stopped.
  NumpyLegacyRandom random(static_cast<uint32_t>(config.training.seed));
  ASSIGN_OR_RETURN(const LoadedSets train,
                   LoadSets(config, config.data.dataset, random, prepared.warnings));
  ASSIGN_OR_RETURN(const LoadedSets eval,
                   LoadSets(config, config.data.eval_dataset, random, prepared.warnings));
  Processor processor(config, tokenizer, setup.format, today, prepared);
  RETURN_IF_ERROR(ProcessTraining(config, train, processor, prepared));
  RETURN_IF_ERROR(ProcessEvaluation(config, eval, processor, prepared));
  return prepared;
}

}  // namespace everstep
