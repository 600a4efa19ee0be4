// LLaMA-Factory's own runs on tiny models, step by step: the same data in the same order, losses,
// gradient norms, learning rates and final weights, through the whole trainer.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/json.h"
#include "tests/support/paths.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/trainer.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;

// The day that the runs' tool prompts contain.
const WallTime kGoldenDay = std::chrono::system_clock::from_time_t(1796040000);

class SilentReporter final : public Reporter {
 public:
  void Report(const wire::Message&) override {}
};

// A working directory with models/<name> as the training files name them.
class GoldenDirectory {
 public:
  GoldenDirectory() {
    std::string pattern = (fs::temp_directory_path() / "everstep-golden-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
    fs::copy(GoldenPath("models"), path_ / "models", fs::copy_options::recursive);
    fs::copy(GoldenPath("data"), path_ / "data", fs::copy_options::recursive);
    for (const char* model : {"tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-mistral"}) {
      for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
        fs::copy_file(fs::path(TestTokenizerDir(model)) / file, path_ / "models" / model / file);
      }
    }
    before_ = fs::current_path();
    fs::current_path(path_);
  }
  ~GoldenDirectory() {
    fs::current_path(before_);
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_, before_;
};

struct GoldenCase {
  std::string name;         // of the run, and of its training file
  double last_loss = 1e-3;  // relative tolerance at the last step; the first one has 2e-6
  double norm = 1e-4;       // of gradient norms, at the first step
  int logical_world = 1;
  std::string config = {};  // training file, when it is another run's
  int max_samples = 0;      // 0: the training file's
};

std::string ReadText(const std::string& path) {
  const auto text = ReadFile(path);
  EXPECT_TRUE(text.has_value()) << (text ? "" : text.error().message);
  return text.value_or("");
}

TrainConfig ConfigOf(const GoldenCase& golden) {
  const std::string name = golden.config.empty() ? golden.name : golden.config;
  const std::string text = ReadText(GoldenPath("configs/" + name + ".yaml"));
  auto config = ParseTrainConfig(text, name + ".yaml");
  EXPECT_TRUE(config.has_value()) << (config ? "" : config.error().message);
  if (config && golden.max_samples > 0) config->data.max_samples = golden.max_samples;
  return config.value_or(TrainConfig{});
}

Json Losses() {
  static const Json losses = *ParseJson(ReadText(GoldenPath("losses.json")), "losses.json");
  return losses;
}

Json TotalFlos() {
  static const Json flos = *ParseJson(ReadText(GoldenPath("total_flos.json")), "total_flos.json");
  return flos;
}

// Trains alone, hosting every logical rank; the run is left in `out`.
Status TrainAlone(TrainConfig config, int logical_world, const fs::path& out,
                  std::unique_ptr<Workload>& workload, bool first_start = true) {
  at::set_num_threads(2);
  const SystemClock clock;
  const std::string model = config.model.model_name_or_path;
  ASSIGN_OR_RETURN(workload, Workload::Load(std::move(config), {.model_directory = model,
                                                                .output_directory = out,
                                                                .logical_world = logical_world,
                                                                .threads = 2,
                                                                .today = kGoldenDay}));
  ASSIGN_OR_RETURN(const auto fabric, TcpFabric::Create({.job = "golden", .token = "t"}));
  MembershipMailbox mailbox;
  SilentReporter reporter;
  wire::Membership membership;
  membership.generation = first_start ? 1 : 2;
  wire::Member member{.rank = 0, .endpoint = fabric->endpoint(), .logical_ranks = {}};
  for (int i = 0; i < logical_world; ++i) member.logical_ranks.push_back(i);
  membership.members.push_back(member);
  mailbox.Deliver(membership);
  Trainer trainer({.workload = *workload,
                   .fabric = *fabric,
                   .mailbox = mailbox,
                   .reporter = reporter,
                   .clock = clock,
                   .artifacts = {.rank = 0, .first_start = first_start, .run = "golden"},
                   .rank = 0});
  const auto ending = trainer.Run();
  if (!ending) return tl::unexpected(ending.error());
  return {};
}

// Rounding differences grow with the steps: the tolerance does too, geometrically.
double Tolerance(double first, double last, size_t step, size_t steps) {
  const double share = steps < 2 ? 1 : static_cast<double>(step) / static_cast<double>(steps - 1);
  return first * std::pow(last / first, share);
}

void CompareHistory(const GoldenCase& golden, const LogHistory& history, const Json& expected) {
  std::vector<LogRecord> steps;
  for (const LogRecord& record : history.records()) {
    if (record.values.contains("loss")) steps.push_back(record);
  }
  ASSERT_EQ(steps.size(), expected.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i + 1));
    const double first = std::min(2e-6, golden.last_loss);
    const double loss = expected[i]["loss"].get<double>();
    const double norm = expected[i]["grad_norm"].get<double>();
    const double start = golden.last_loss > 5e-3 ? golden.last_loss : first;
    EXPECT_NEAR(steps[i].values.at("loss"), loss,
                loss * Tolerance(start, golden.last_loss, i, steps.size()));
    EXPECT_NEAR(steps[i].values.at("grad_norm"), norm,
                norm * Tolerance(golden.norm, std::max(golden.norm, 10 * golden.last_loss), i,
                                 steps.size()));
    EXPECT_EQ(steps[i].values.at("learning_rate"), expected[i]["learning_rate"].get<double>());
    EXPECT_EQ(steps[i].epoch, expected[i]["epoch"].get<double>());
  }
}

// Largest difference between two safetensors files, relative to the largest value.
void CompareWeights(const fs::path& ours, const fs::path& theirs, double tolerance) {
  const auto a = SafetensorsFile::Open(ours), b = SafetensorsFile::Open(theirs);
  ASSERT_TRUE(a.has_value()) << a.error().message;
  ASSERT_TRUE(b.has_value()) << b.error().message;
  ASSERT_EQ(a->tensors().size(), b->tensors().size());
  for (const TensorView& expected : b->tensors()) {
    const TensorView* tensor = a->Find(expected.name);
    ASSERT_NE(tensor, nullptr) << expected.name;
    ASSERT_EQ(tensor->shape, expected.shape) << expected.name;
    ASSERT_EQ(tensor->dtype, expected.dtype) << expected.name;
    const auto* x = reinterpret_cast<const float*>(tensor->data.data());
    const auto* y = reinterpret_cast<const float*>(expected.data.data());
    double largest = 0, difference = 0;
    for (size_t i = 0; i < expected.data.size() / sizeof(float); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(y[i])));
      difference = std::max(difference, std::abs(static_cast<double>(x[i]) - y[i]));
    }
    EXPECT_LE(difference, tolerance * std::max(largest, 1e-3)) << expected.name;
  }
}

class GoldenTrainingTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenTrainingTest, StepsAndWeightsAreLlamaFactorys) {
  const GoldenCase& golden = GetParam();
  const GoldenDirectory directory;
  const fs::path out = directory.path() / "out";
  std::unique_ptr<Workload> workload;
  const Status trained = TrainAlone(ConfigOf(golden), golden.logical_world, out, workload);
  ASSERT_TRUE(trained.has_value()) << trained.error().message;
  CompareHistory(golden, workload->state().history(), Losses()[golden.name]);
  const auto results = ParseJson(ReadText(out / "all_results.json"), "all_results.json");
  ASSERT_TRUE(results.has_value()) << results.error().message;
  EXPECT_EQ((*results)["total_flos"], TotalFlos()[golden.name]);
  for (const char* file : {"adapter_model.safetensors", "model.safetensors"}) {
    const std::string expected = GoldenPath("runs/" + golden.name + "/" + file);
    if (fs::exists(expected)) CompareWeights(out / file, expected, 50 * golden.last_loss);
  }
}

constexpr double kFull = 1e-3;
constexpr double kLora = 1e-4;
constexpr double kBf16 = 2e-2;

INSTANTIATE_TEST_SUITE_P(
    LlamaFactory, GoldenTrainingTest,
    ::testing::Values(
        GoldenCase{"own_sft_full"}, GoldenCase{"own_sft_lora", kLora},
        GoldenCase{"own_sft_freeze", kFull}, GoldenCase{"own_pt_full"}, GoldenCase{"own_pt_nopack"},
        GoldenCase{"own_sft_full_llama_alpaca"}, GoldenCase{"own_sft_full_llama_vicuna"},
        GoldenCase{"own_sft_full_llama_default"}, GoldenCase{"own_sft_full_mistral_mistral"},
        GoldenCase{"own_sft_full_qwen2_qwen"}, GoldenCase{"own_sft_full_qwen3_qwen3"},
        GoldenCase{"own_sft_full_qwen3_qwen3_nothink"}, GoldenCase{"own_sft_packing"},
        GoldenCase{"own_sft_neat_packing"}, GoldenCase{"own_sft_mask_history"},
        GoldenCase{"own_sft_train_on_prompt"}, GoldenCase{"own_sft_openai_fmt"},
        GoldenCase{"own_sft_epochs"}, GoldenCase{"own_sft_noshuffle"}, GoldenCase{"own_sft_clip"},
        GoldenCase{"own_sft_label_smoothing"}, GoldenCase{"own_sft_dft"},
        GoldenCase{"own_sft_rslora", kLora}, GoldenCase{"own_sft_loraplus", kLora},
        GoldenCase{"own_sft_lora_fresh", kLora}, GoldenCase{"own_sft_dora_fresh", kLora},
        GoldenCase{"own_sft_lora_addtarget", kFull}, GoldenCase{"own_sft_bf16", kBf16, kBf16},
        GoldenCase{"own_sft_lora_bf16", kBf16, kBf16}, GoldenCase{"own_sched_linear"},
        GoldenCase{"own_sched_constant"}, GoldenCase{"own_sched_constant_with_warmup"},
        GoldenCase{"own_sched_cosine_with_restarts"}, GoldenCase{"own_sched_cosine_with_min_lr"},
        GoldenCase{"own_sched_warmup_stable_decay"},
        GoldenCase{.name = "ddp2_own_sft_full",
                   .logical_world = 2,
                   .config = "own_sft_full",
                   .max_samples = 21},
        GoldenCase{.name = "ddp2_own_sft_epochs",
                   .logical_world = 2,
                   .config = "own_sft_epochs",
                   .max_samples = 21}),
    [](const ::testing::TestParamInfo<GoldenCase>& info) { return info.param.name; });

// LLaMA-Factory draws NEFTune's noise from one global generator; ours is a function of the
// micro-batch, so that it does not depend on the rank that computes it. The draws differ, their
// distribution does not: losses agree as far as noise lets them.
TEST(GoldenTrainingTest, NeftuneAgreesWithinItsNoise) {
  const GoldenCase golden{"own_sft_neftune", 0.05, 0.3};
  const GoldenDirectory directory;
  std::unique_ptr<Workload> workload;
  const Status trained = TrainAlone(ConfigOf(golden), 1, directory.path() / "out", workload);
  ASSERT_TRUE(trained.has_value()) << trained.error().message;
  CompareHistory(golden, workload->state().history(), Losses()[golden.name]);
}

// A run that goes on from its checkpoint is the undisturbed run, to the bit.
TEST(GoldenTrainingTest, ResumedFromACheckpointItIsTheSameRun) {
  for (const char* name : {"own_sft_full", "own_sft_lora"}) {
    SCOPED_TRACE(name);
    const GoldenDirectory directory;
    const fs::path whole = directory.path() / "whole", resumed = directory.path() / "resumed";
    std::unique_ptr<Workload> workload;
    ASSERT_TRUE(TrainAlone(ConfigOf({name}), 1, whole, workload).has_value());
    const LogHistory undisturbed = workload->state().history();
    fs::create_directories(resumed);
    fs::copy(whole / "checkpoint-6", resumed / "checkpoint-6", fs::copy_options::recursive);

    const Status trained =
        TrainAlone(ConfigOf({name}), 1, resumed, workload, /*first_start=*/false);
    ASSERT_TRUE(trained.has_value()) << trained.error().message;
    ASSERT_EQ(workload->state().history().records().size(), undisturbed.records().size());
    for (size_t i = 0; i < undisturbed.records().size(); ++i) {
      EXPECT_EQ(workload->state().history().records()[i].values, undisturbed.records()[i].values);
    }
    const std::string file =
        std::string(name) == "own_sft_lora" ? "adapter_model.safetensors" : "model.safetensors";
    EXPECT_EQ(ReadText(resumed / file), ReadText(whole / file));
  }
}

}  // namespace
}  // namespace everstep
