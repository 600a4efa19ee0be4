#include "worker/report/model_card.h"

#include "common/strings.h"
#include "worker/report/python_json.h"

namespace everstep {
namespace {

// A JSON string is a YAML string, whatever is in it.
std::string Quoted(const std::string& text) { return PythonJson(OrderedJson(text)); }

}  // namespace

std::string ModelCardText(const ModelCard& card) {
  const bool adapter = card.finetuning_type == "lora";
  std::string text = "---\n";
  text += std::string("library_name: ") + (adapter ? "peft" : "transformers") + "\n";
  text += "license: other\nbase_model: " + Quoted(card.base_model) + "\ntags:\n";
  if (adapter) text += "- base_model:adapter:" + card.base_model + "\n";
  text += "- everstep\n- " + card.finetuning_type + "\n- generated_from_trainer\n";
  if (adapter) text += "pipeline_tag: text-generation\n";
  text += "---\n\n# " + card.name + "\n\n";
  text += "This model is " + card.base_model + " fine-tuned (" + card.stage + ", " +
          card.finetuning_type + ")";
  if (!card.datasets.empty()) text += " on " + Join(card.datasets, ", ");
  text += " with Everstep.\n";
  if (!card.settings.empty()) {
    text += "\n## Training hyperparameters\n\n";
    for (const auto& [name, value] : card.settings) text += "- " + name + ": " + value + "\n";
  }
  if (!card.results.empty()) {
    text += "\n## Results\n\n| metric | value |\n|---|---|\n";
    for (const auto& [name, value] : card.results) {
      text += "| " + name + " | " + PythonFloat(value) + " |\n";
    }
  }
  return text;
}

}  // namespace everstep
