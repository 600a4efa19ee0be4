// Ids and labels of every template, data set and option with real tokenizers, against
// LLaMA-Factory's own (tests/golden/tokens).
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/worker/data/golden.h"
#include "worker/data/prepare.h"

namespace everstep {
namespace {

constexpr int64_t kGoldenSamples = 16;

// Data sets are named with the options that were used: own_alpaca_mh is mask_history.
struct Variant {
  const char* suffix;
  void (*apply)(DataArguments&);
};

constexpr Variant kVariants[] = {
    {"_mh", [](DataArguments& data) { data.mask_history = true; }},
    {"_tp", [](DataArguments& data) { data.train_on_prompt = true; }},
    {"_cut48", [](DataArguments& data) { data.cutoff_len = 48; }},
    {"_sys", [](DataArguments& data) { data.default_system = "Answer in one line."; }},
    {"_nothink", [](DataArguments& data) { data.enable_thinking = false; }},
};

TrainConfig ConfigOf(const std::string& tokenizer, const Json& golden) {
  TrainConfig config;
  config.model.model_name_or_path = tokenizer;
  config.training.do_train = true;
  config.data.dataset_dir = GoldenPath("data");
  config.data.max_samples = kGoldenSamples;
  config.data.template_name = golden["template"];
  std::string dataset = golden["data"];
  for (const Variant& variant : kVariants) {
    if (!dataset.ends_with(variant.suffix)) continue;
    variant.apply(config.data);
    dataset.resize(dataset.size() - std::string(variant.suffix).size());
  }
  config.data.dataset = {dataset};
  return config;
}

class GoldenTokensTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTokensTest, EqualLlamaFactorys) {
  const std::string name = GetParam();
  // A template changes the tokenizer, always in the same way: one for each template.
  std::map<std::string, Tokenizer> tokenizers;
  int cases = 0;
  for (const Json& golden : ReadGoldenLines("tokens/" + name + ".jsonl")) {
    SCOPED_TRACE(golden["template"].get<std::string>() + " " + golden["data"].get<std::string>());
    auto found = tokenizers.find(golden["template"]);
    if (found == tokenizers.end()) {
      auto loaded = Tokenizer::Load(TestTokenizerDir(name));
      ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
      found = tokenizers.emplace(golden["template"], *std::move(loaded)).first;
    }
    Tokenizer& tokenizer = found->second;
    const auto prepared = PrepareData(ConfigOf(name, golden), tokenizer, GoldenDay());
    ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
    const Json& examples = golden["examples"];
    ASSERT_EQ(prepared->train.size(), examples.size());
    for (size_t i = 0; i < examples.size(); ++i) {
      const Example& example = prepared->train[i];
      EXPECT_EQ(Json(example.ids), examples[i]["ids"])
          << "example " << i << ": " << tokenizer.Decode(example.ids);
      const std::vector<int64_t> labels(example.labels.begin(), example.labels.end());
      EXPECT_EQ(labels, GoldenLabels(examples[i]["ids"], examples[i]["trained"]))
          << "example " << i;
      if (HasFailure()) return;
    }
    ++cases;
  }
  EXPECT_GE(cases, 84);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenTokensTest,
                         ::testing::Values("llama3_1", "qwen3", "llama2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace everstep
