// Training speed and memory of the model alone: forward, backward and AdamW on made-up tokens, with
// random weights of a real model's shape. Prints one JSON object per case:
//
//   worker_benchmark                          all cases, each in a process of its own
//   worker_benchmark perf-llama bf16 lora on  one case; the last word is gradient checkpointing
//
// EVERSTEP_THREADS sets the number of threads (default 2), EVERSTEP_BENCHMARK_STEPS that of timed
// steps (default 5). The time is the fastest step's: the machine may be doing other things.
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/json.h"
#include "tests/support/temp_dir.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/model/causal_lm.h"
#include "worker/optim/adamw.h"
#include "worker/parallel/layout.h"

namespace everstep {
namespace {

struct Shape {
  const char* name;
  int64_t hidden, ffn, layers, heads, kv_heads, vocab;
  bool tied;
  int32_t rows, cols;
  const char* dtype;
};
constexpr Shape kShapes[] = {
    {"perf-llama", 512, 1408, 8, 8, 8, 32000, false, 4, 512, "F32"},
    {"smollm2-135m", 576, 1536, 30, 9, 3, 49152, true, 4, 256, "BF16"},
};

struct Case {
  const Shape* shape;
  std::string precision, finetuning, checkpointing;
};

int FromEnvironment(const char* name, int fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::max(1, std::atoi(value));
}

void WriteConfig(const Shape& shape, const std::string& directory) {
  const Json config = {{"model_type", "llama"},
                       {"vocab_size", shape.vocab},
                       {"hidden_size", shape.hidden},
                       {"intermediate_size", shape.ffn},
                       {"num_hidden_layers", shape.layers},
                       {"num_attention_heads", shape.heads},
                       {"num_key_value_heads", shape.kv_heads},
                       {"rms_norm_eps", 1e-5},
                       {"tie_word_embeddings", shape.tied}};
  std::ofstream(directory + "/config.json") << config.dump(1);
}

void WriteWeights(const Shape& shape, const std::string& directory) {
  const bool half = std::string(shape.dtype) == "BF16";
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> size) {
    const bool norm = size.size() == 1;
    const torch::Tensor value = norm ? torch::ones(size) : torch::randn(size) * 0.02;
    tensors.emplace_back(name, half ? value.to(torch::kBFloat16) : value);
  };
  const int64_t d = shape.hidden / shape.heads, kv = shape.kv_heads * d;
  add("model.embed_tokens.weight", {shape.vocab, shape.hidden});
  for (int64_t i = 0; i < shape.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    add(prefix + "self_attn.q_proj.weight", {shape.hidden, shape.hidden});
    add(prefix + "self_attn.k_proj.weight", {kv, shape.hidden});
    add(prefix + "self_attn.v_proj.weight", {kv, shape.hidden});
    add(prefix + "self_attn.o_proj.weight", {shape.hidden, shape.hidden});
    add(prefix + "mlp.gate_proj.weight", {shape.ffn, shape.hidden});
    add(prefix + "mlp.up_proj.weight", {shape.ffn, shape.hidden});
    add(prefix + "mlp.down_proj.weight", {shape.hidden, shape.ffn});
    add(prefix + "input_layernorm.weight", {shape.hidden});
    add(prefix + "post_attention_layernorm.weight", {shape.hidden});
  }
  add("model.norm.weight", {shape.hidden});
  if (!shape.tied) add("lm_head.weight", {shape.vocab, shape.hidden});
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    views.push_back({name,
                     half ? DType::kBFloat16 : DType::kFloat32,
                     tensor.sizes().vec(),
                     {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
  }
  EVERSTEP_CHECK(WriteSafetensors(directory + "/model.safetensors", views, {}).has_value());
}

MicroBatch RandomBatch(const Shape& shape) {
  std::mt19937_64 random(1);
  MicroBatch batch;
  batch.rows = shape.rows;
  batch.cols = shape.cols;
  batch.lengths.assign(static_cast<size_t>(shape.rows), shape.cols);
  for (int64_t i = 0; i < batch.rows * batch.cols; ++i) {
    batch.ids.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(shape.vocab)));
  }
  batch.labels = batch.ids;
  batch.label_tokens = batch.rows * batch.cols;
  return batch;
}

// AdamW over the flat vectors, as the trainer runs it.
void Update(const FlatLayout& layout, int64_t step, torch::Tensor& parameters,
            torch::Tensor& gradient, torch::Tensor& m, torch::Tensor& v) {
  constexpr int64_t kRun = 16384;
  const auto span = [](torch::Tensor& t, int64_t begin, int64_t end) {
    return std::span(t.mutable_data_ptr<float>() + begin, static_cast<size_t>(end - begin));
  };
  const int64_t runs = (layout.size + kRun - 1) / kRun;
  at::parallel_for(0, runs, 1, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kRun, end = std::min(layout.size, last * kRun);
    ApplyAdamW({}, {.step = step, .learning_rate = 1e-4, .weight_decay = 0.01},
               {span(parameters, begin, end), span(gradient, begin, end), span(m, begin, end),
                span(v, begin, end)});
  });
}

void RunCase(const Case& c, const std::string& directory) {
  at::set_num_threads(FromEnvironment("EVERSTEP_THREADS", 2));
  TrainConfig config;
  config.finetuning.type = c.finetuning == "lora" ? FinetuningType::kLora : FinetuningType::kFull;
  config.training.precision = c.precision == "bf16" ? Precision::kBFloat16 : Precision::kFloat32;
  config.training.gradient_checkpointing = c.checkpointing == "on";
  auto loaded = CausalLm::Load(directory, config, 0);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    std::exit(1);
  }
  CausalLm& model = **loaded;
  FlatLayout layout;
  for (const CausalLm::Parameter& parameter : model.trainable()) {
    AppendEntry(layout, {.name = parameter.name, .shape = parameter.value.sizes().vec()});
  }
  torch::Tensor parameters = torch::empty({layout.size}), gradient = torch::zeros({layout.size});
  torch::Tensor m = torch::zeros({layout.size}), v = torch::zeros({layout.size});
  model.BindFlat(parameters, layout);
  const MicroBatch batch = RandomBatch(*c.shape);
  std::vector<double> seconds;
  const int steps = FromEnvironment("EVERSTEP_BENCHMARK_STEPS", 5);
  double loss = 0;
  for (int step = 0; step <= steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    gradient.zero_();
    const auto pass = model.ForwardBackward(batch, {.step = step}, gradient);
    EVERSTEP_CHECK(pass.has_value());
    loss = pass->loss_sum / static_cast<double>(pass->scored_tokens);
    gradient.div_(static_cast<double>(pass->scored_tokens));
    Update(layout, step + 1, parameters, gradient, m, v);
    model.AfterUpdate();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (step > 0) seconds.push_back(took.count());  // the first one touches fresh memory
  }
  std::ranges::sort(seconds);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const OrderedJson result = {
      {"model", c.shape->name},
      {"precision", c.precision},
      {"finetuning", c.finetuning},
      {"gradient_checkpointing", c.checkpointing == "on"},
      {"tokens", batch.rows * batch.cols},
      {"tokens_per_second", static_cast<double>(batch.rows * batch.cols) / seconds.front()},
      {"step_seconds_min", seconds.front()},
      {"step_seconds_median", seconds[seconds.size() / 2]},
      {"peak_rss_mib", usage.ru_maxrss / 1024},
      {"threads", at::get_num_threads()},
      {"loss", loss}};
  std::printf("%s\n", result.dump().c_str());
  std::fflush(stdout);
}

int RunInChild(const Case& c, const std::string& directory) {
  const pid_t child = fork();
  if (child == 0) {
    RunCase(c, directory);
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

// Random weights are written by a child too: this process must not start threads before it forks.
void MakeModel(const Shape& shape, const std::string& directory) {
  std::filesystem::create_directories(directory);
  const pid_t child = fork();
  if (child == 0) {
    WriteConfig(shape, directory);
    WriteWeights(shape, directory);
    std::exit(0);
  }
  waitpid(child, nullptr, 0);
}

int Main(int argc, char** argv) {
  ConfigureAllocator();
  const TempDir root;
  int failures = 0;
  for (const Shape& shape : kShapes) {
    if (argc > 1 && std::string(argv[1]) != shape.name) continue;
    const std::string directory = root / shape.name;
    MakeModel(shape, directory);
    for (const char* precision : {"fp32", "bf16"}) {
      for (const char* finetuning : {"full", "lora"}) {
        for (const char* checkpointing : {"on", "off"}) {
          if (argc > 2 && std::string(argv[2]) != precision) continue;
          if (argc > 3 && std::string(argv[3]) != finetuning) continue;
          if (argc > 4 && std::string(argv[4]) != checkpointing) continue;
          failures += RunInChild({&shape, precision, finetuning, checkpointing}, directory);
        }
      }
    }
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace everstep

int main(int argc, char** argv) { return everstep::Main(argc, argv); }
