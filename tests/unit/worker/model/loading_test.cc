// What is wrong with a model directory is said in one line, and adapters are merged as PEFT does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/files.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/worker/model/bound_model.h"
#include "worker/checkpoint/safetensors.h"

namespace everstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A copy of a golden model to spoil.
class LoadingTest : public testing::Test {
 protected:
  LoadingTest() {
    for (const char* file : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(GoldenModel("tiny-llama") + "/" + file, directory_ + "/" + file);
    }
  }

  std::string Error(const TrainConfig& config = FullConfig(), int64_t vocab_size = 0,
                    int64_t new_tokens = 0) {
    const auto model = CausalLm::Load(directory_, config, vocab_size, new_tokens);
    if (model) return "loaded";
    EXPECT_THAT(model.error().message, Not(HasSubstr("\n")));
    return model.error().message;
  }
  void SetConfig(const std::string& key, const Json& value) {
    Json config = ParseJson(ReadFile(directory_ + "/config.json").value(), "config").value();
    config[key] = value;
    std::ofstream(directory_ + "/config.json") << config.dump();
  }
  // Rewrites the weights after `change` was applied to their views.
  template <typename Change>
  void Rewrite(const Change& change) {
    std::vector<TensorView> views;
    {
      const auto file =
          SafetensorsFile::Open(GoldenModel("tiny-llama") + "/model.safetensors").value();
      views = file.tensors();
      change(views);
      ASSERT_TRUE(WriteSafetensors(directory_ + "/model.safetensors", views, {}).has_value());
    }
  }

  const TempDir temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(LoadingTest, MissingTensor) {
  Rewrite([](std::vector<TensorView>& views) {
    std::erase_if(views, [](const TensorView& v) { return v.name == "model.norm.weight"; });
  });
  EXPECT_THAT(Error(),
              AllOf(HasSubstr(directory_), HasSubstr("model.norm.weight"), HasSubstr("[64]")));
}

TEST_F(LoadingTest, UnexpectedTensor) {
  Rewrite([](std::vector<TensorView>& views) {
    views.push_back(views.front());
    views.back().name = "model.layers.0.self_attn.q_proj.bias";
  });
  EXPECT_THAT(Error(), AllOf(HasSubstr("model.safetensors"),
                             HasSubstr("model.layers.0.self_attn.q_proj.bias")));
}

TEST_F(LoadingTest, WrongShape) {
  SetConfig("intermediate_size", 128);
  EXPECT_THAT(Error(), AllOf(HasSubstr("model.safetensors"), HasSubstr("gate_proj.weight"),
                             HasSubstr("[176, 64]"), HasSubstr("[128, 64]")));
}

TEST_F(LoadingTest, UnknownArchitecture) {
  SetConfig("model_type", "gpt2");
  EXPECT_THAT(Error(), AllOf(HasSubstr("config.json: model_type"), HasSubstr("gpt2")));
}

TEST_F(LoadingTest, UnsupportedValues) {
  SetConfig("hidden_act", "gelu");
  EXPECT_THAT(Error(), HasSubstr("config.json: hidden_act"));
  SetConfig("hidden_act", "silu");
  SetConfig("rope_scaling", {{"rope_type", "longrope"}});
  EXPECT_THAT(Error(),
              AllOf(HasSubstr("config.json: rope_scaling: rope_type"), HasSubstr("longrope")));
}

TEST_F(LoadingTest, TokenizerWithNewTokensNeedsResizeVocab) {
  EXPECT_THAT(Error(FullConfig(), 2050, 2), HasSubstr("resize_vocab"));
  TrainConfig config = FullConfig();
  config.model.resize_vocab = true;
  const auto model = CausalLm::Load(directory_, config, 2050, 2);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ((*model)->vocab_size(), 2112);  // the next multiple of 64
}

TEST_F(LoadingTest, FreezeModulesAreChecked) {
  TrainConfig config = FullConfig();
  config.finetuning.type = FinetuningType::kFreeze;
  config.finetuning.freeze.trainable_modules = {"attention"};
  EXPECT_THAT(Error(config), AllOf(HasSubstr("freeze_trainable_modules"), HasSubstr("self_attn")));
}

TEST_F(LoadingTest, AdapterOfAnotherModelIsRefused) {
  SetConfig("num_hidden_layers", 1);
  Rewrite([](std::vector<TensorView>& views) {
    std::erase_if(views, [](const TensorView& v) { return v.name.starts_with("model.layers.1"); });
  });
  TrainConfig config = LoraConfig(GoldenModel("tiny-qwen3-adapter"));
  EXPECT_THAT(Error(config), AllOf(HasSubstr("adapter_model.safetensors"), HasSubstr("shape")));
}

TEST_F(LoadingTest, TokensOutsideTheVocabularyAreAnError) {
  BoundModel bound = LoadBound(directory_, FullConfig());
  MicroBatch batch = MakeBatch({10}, 2048, 1);
  batch.ids[3] = 2048;
  const auto result = bound.model->ForwardBackward(batch, {}, bound.gradient);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.error().message, HasSubstr("2048"));
}

TEST_F(LoadingTest, MergedAdapterComputesWhatTheAdapterComputes) {
  const MicroBatch batch = MakeBatch({30, 12}, 2048, 3);
  TrainConfig config = LoraConfig(GoldenModel("tiny-llama-adapter"));
  BoundModel beside = LoadBound(directory_, config);
  config.finetuning.lora.create_new_adapter = true;
  BoundModel merged = LoadBound(directory_, config);
  EXPECT_TRUE(torch::allclose(beside.model->Logits(batch).value(),
                              merged.model->Logits(batch).value(), 1e-4, 1e-4));
}

TEST_F(LoadingTest, RowsThatPadAndTokensAfterTheLastLabelDoNotCount) {
  BoundModel bound = LoadBound(directory_, FullConfig());
  MicroBatch plain = MakeBatch({20, 9}, 2048, 3);
  MicroBatch longer = MakeBatch({26, 26}, 2048, 4);
  for (size_t row = 0; row < 2; ++row) {
    for (size_t col = 0; col < 26; ++col) {
      const bool same = col < static_cast<size_t>(plain.lengths[row]);
      longer.labels[row * 26 + col] = same ? plain.labels[row * 20 + col] : kIgnoreLabel;
      if (same) longer.ids[row * 26 + col] = plain.ids[row * 20 + col];
    }
  }
  const double loss = bound.Compute({plain});
  const torch::Tensor gradient = bound.gradient.clone();
  EXPECT_EQ(bound.Compute({longer}), loss);
  EXPECT_TRUE(torch::equal(bound.gradient, gradient));
}

}  // namespace
}  // namespace everstep
