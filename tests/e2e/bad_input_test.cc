// Bad input, end to end: `everstep run` says in one line what is wrong, where, and what to do; its
// exit code is not 0, and nothing is trained. Keys of the training file and of the manifest have
// tables of their own (bad_training_file_test, bad_manifest_test); here is what only a run can see,
// and one of each other kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/e2e/bad_input_workspace.h"

namespace everstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

using Workspace = BadInputWorkspace;

struct BadInput {
  const char* name;
  void (*spoil)(Workspace&);
  std::string error;  // all of standard error; DIR is the workspace
};

void PrintTo(const BadInput& input, std::ostream* out) { *out << input.name; }

// What the job's failure looks like when a worker refuses its input.
[[maybe_unused]] std::string Refused(const std::string& message) {
  return "bad failed: " + message + "\nlogs: DIR/everstep-runs/bad/logs\n";
}

class BadInputTest : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadInputTest, IsToldInOneLineBeforeAnythingIsTrained) {
  Workspace workspace;
  GetParam().spoil(workspace);
  const RunResult result = workspace.Run();
  EXPECT_EQ(result.errors, GetParam().error);
  EXPECT_TRUE(result.exit_code == 1 || result.exit_code == 2) << result.exit_code;
  EXPECT_THAT(result.out, Not(HasSubstr("step 1/")));
  EXPECT_FALSE(fs::exists(workspace.output() / "trainer_log.jsonl"));
}

const BadInput kManifest[] = {
    {"ManifestMissing",
     [](Workspace& w) {
       w.WriteManifest("");
       fs::remove(w.path() / "job.yaml");
     },
     ""},
    {"ManifestEmpty", [](Workspace& w) { w.WriteManifest(""); }, ""},
    {"ManifestIsBrokenYaml", [](Workspace& w) { w.WriteManifest("kind: [TrainingJob\n"); }, ""},
    {"ManifestOfAnotherKind",
     [](Workspace& w) {
       w.WriteManifest("apiVersion: batch/v1\nkind: Job\nmetadata: {name: bad}\nspec: {}\n");
     },
     ""},
    {"SpecKeyWithATypo", [](Workspace& w) { w.Spec("recovery: {maxRestart: 3}"); }, ""},
    {"NoReplicas", [](Workspace& w) { w.Spec("processesPerReplica: 0"); }, ""},
    {"KeyOfTheTrainingFileWithATypo", [](Workspace& w) { w.Train("lora_rnak", "8"); }, ""},
    {"UnknownStage", [](Workspace& w) { w.Train("stage", "sftt"); }, ""},
    {"NotDoneYet", [](Workspace& w) { w.Train("stage", "dpo"); }, ""},
    {"NoModelNamed", [](Workspace& w) { w.DropTrain("model_name_or_path"); }, ""},
};

const BadInput kModel[] = {
    {"ModelDirectoryMissing",
     [](Workspace& w) { w.Train("model_name_or_path", (w.path() / "modell").string()); }, ""},
    {"ConfigMissing", [](Workspace& w) { fs::remove(w.model() / "config.json"); }, ""},
    {"ConfigMalformed",
     [](Workspace& w) { w.Write(w.model() / "config.json", "{\n \"model_type\": \"llama\",\n"); },
     ""},
    {"ArchitectureUnknown",
     [](Workspace& w) { w.ModelConfig([](Json& config) { config["model_type"] = "mamba"; }); }, ""},
    {"ConfigLacksASize",
     [](Workspace& w) { w.ModelConfig([](Json& config) { config.erase("hidden_size"); }); }, ""},
    {"HeadsDoNotDivide",
     [](Workspace& w) { w.ModelConfig([](Json& config) { config["num_key_value_heads"] = 3; }); },
     ""},
    {"WeightsMissing", [](Workspace& w) { fs::remove(w.model() / "model.safetensors"); }, ""},
    {"WeightsAsPickle",
     [](Workspace& w) {
       fs::rename(w.model() / "model.safetensors", w.model() / "pytorch_model.bin");
     },
     ""},
    {"WeightsTruncated", [](Workspace& w) { w.TruncateWeights(1000); }, ""},
    {"WeightsEmpty", [](Workspace& w) { fs::resize_file(w.model() / "model.safetensors", 0); }, ""},
    {"WeightsHeaderIsNoJson", [](Workspace& w) { w.WeightsHeaderText("{\"a\": "); }, ""},
    {"WeightsHeaderIsTooLong",
     [](Workspace& w) {
       w.Write(w.model() / "model.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}"));
     },
     ""},
    {"TensorsOverlap",
     [](Workspace& w) {
       w.WeightsHeader([](Json& header) {
         header["model.norm.weight"]["data_offsets"] =
             header["model.layers.0.input_layernorm.weight"]["data_offsets"];
       });
     },
     ""},
    {"TensorReachesBeyondTheFile",
     [](Workspace& w) {
       w.WeightsHeader([](Json& header) {
         header["model.norm.weight"]["data_offsets"] = {1U << 30, (1U << 30) + 256};
       });
     },
     ""},
    {"TensorTypeUnknown",
     [](Workspace& w) {
       w.WeightsHeader([](Json& header) { header["model.norm.weight"]["dtype"] = "F4"; });
     },
     ""},
    {"TensorMissing",
     [](Workspace& w) {
       w.WeightsHeader([](Json& header) {
         header["model.norm.wait"] = header["model.norm.weight"];
         header.erase("model.norm.weight");
       });
     },
     ""},
    {"TensorOfAnotherShape",
     [](Workspace& w) { w.ModelConfig([](Json& config) { config["intermediate_size"] = 88; }); },
     ""},
    {"ShardMissing",
     [](Workspace& w) {
       fs::remove(w.model() / "model.safetensors");
       w.Write(w.model() / "model.safetensors.index.json",
               R"({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}})");
     },
     ""},
    {"ShardIndexMalformed",
     [](Workspace& w) {
       fs::remove(w.model() / "model.safetensors");
       w.Write(w.model() / "model.safetensors.index.json", "{\"weight_map\": [}");
     },
     ""},
    {"LoraTargetNowhere", [](Workspace& w) { w.Train("lora_target", "q_prj"); }, ""},
    {"FreezeMoreLayersThanThereAre",
     [](Workspace& w) {
       w.Train("finetuning_type", "freeze");
       w.Train("freeze_trainable_layers", "5");
     },
     ""},
    {"AdapterMissing",
     [](Workspace& w) { w.Train("adapter_name_or_path", (w.path() / "adapter").string()); }, ""},
    {"HubOffline",
     [](Workspace& w) { w.Train("model_name_or_path", "everstep-tests/no-such-model"); }, ""},
};

const BadInput kTokenizer[] = {
    {"TokenizerMissing", [](Workspace& w) { fs::remove(w.model() / "tokenizer.json"); }, ""},
    {"TokenizerMalformed",
     [](Workspace& w) { w.Write(w.model() / "tokenizer.json", "{\"version\": \"1.0\""); }, ""},
    {"TokenizerConfigMalformed",
     [](Workspace& w) { w.Write(w.model() / "tokenizer_config.json", "{\n"); }, ""},
    {"TemplateUnknown", [](Workspace& w) { w.Train("template", "lama3"); }, ""},
    {"TemplateOfAnotherModel", [](Workspace& w) { w.Train("template", "qwen"); }, ""},
    {"VocabularyLargerThanTheModel",
     [](Workspace& w) {
       w.ModelConfig([](Json& config) { config["vocab_size"] = 1024; });
       w.WeightsHeader([](Json& header) {
         for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
           header[name]["shape"] = {1024, 128};
         }
       });
       w.ModelConfig([](Json& config) { config["hidden_size"] = 128; });
     },
     ""},
};

const BadInput kData[] = {
    {"DatasetInfoMissing", [](Workspace& w) { fs::remove(w.data() / "dataset_info.json"); }, ""},
    {"DatasetInfoMalformed",
     [](Workspace& w) { w.DatasetInfo("{\n \"rows\": {\n  \"file_name\": }\n}"); }, ""},
    {"DatasetInfoIsAList", [](Workspace& w) { w.DatasetInfo("[]"); }, ""},
    {"DatasetNotListed", [](Workspace& w) { w.Train("dataset", "rosw"); }, ""},
    {"DatasetFormatUnknown",
     [](Workspace& w) {
       w.DatasetInfo(R"({"rows": {"file_name": "rows.json", "formatting": "alpacca"}})");
     },
     ""},
    {"DatasetFileMissing", [](Workspace& w) { fs::remove(w.data() / "rows.json"); }, ""},
    {"DatasetFileOfUnknownType",
     [](Workspace& w) {
       fs::rename(w.data() / "rows.json", w.data() / "rows.xml");
       w.DatasetInfo(R"({"rows": {"file_name": "rows.xml"}})");
     },
     ""},
    {"RowsMalformed",
     [](Workspace& w) {
       w.Rows("[\n {\"instruction\": \"a\", \"output\": \"b\"},\n {\"instruction\": \"a\",, }\n]");
     },
     ""},
    {"RowsAreNoList", [](Workspace& w) { w.Rows("\"rows\""); }, ""},
    {"RowsEmpty", [](Workspace& w) { w.Rows("[]"); }, ""},
    {"RowsFileEmpty", [](Workspace& w) { w.Rows(""); }, ""},
    {"LineOfJsonLinesMalformed",
     [](Workspace& w) {
       w.DatasetInfo(R"({"rows": {"file_name": "rows.jsonl"}})");
       w.Write(w.data() / "rows.jsonl",
               "{\"instruction\": \"a\", \"output\": \"b\"}\n{\"instruction\": \"a\"\n");
     },
     ""},
    {"ColumnMissing",
     [](Workspace& w) {
       w.DatasetInfo(R"({"rows": {"file_name": "rows.json", "columns": {"prompt": "question"}}})");
     },
     ""},
    {"ColumnKeyUnknown",
     [](Workspace& w) {
       w.DatasetInfo(
           R"({"rows": {"file_name": "rows.json", "columns": {"promt": "instruction"}}})");
     },
     ""},
    {"ValueIsNoText",
     [](Workspace& w) { w.Rows(R"([{"instruction": {"a": 1}, "input": "", "output": "b"}])"); },
     ""},
    {"NothingFitsTheCutoff", [](Workspace& w) { w.Train("cutoff_len", "1"); }, ""},
    {"FewerRowsThanOneBatch",
     [](Workspace& w) {
       w.Train("dataloader_drop_last", "true");
       w.Train("per_device_train_batch_size", "8");
     },
     ""},
    {"MetricNotMeasured",
     [](Workspace& w) {
       w.Train("val_size", "2");
       w.Train("eval_strategy", "steps");
       w.Train("eval_steps", "1");
       w.Train("save_steps", "1");
       w.Train("load_best_model_at_end", "true");
       w.Train("metric_for_best_model", "f1");
     },
     ""},
};

const BadInput kPlaces[] = {
    {"OutputDirectoryIsAFile", [](Workspace& w) { w.Write(w.output(), "x"); }, ""},
    {"OutputDirectoryCannotBeMade",
     [](Workspace& w) { w.Train("output_dir", "/proc/everstep/out"); }, ""},
    {"OutputDirectoryNotEmpty",
     [](Workspace& w) {
       fs::create_directories(w.output());
       w.Write(w.output() / "thesis.tex", "x");
     },
     ""},
    {"CheckpointToResumeMissing",
     [](Workspace& w) {
       w.Train("resume_from_checkpoint", (w.output() / "checkpoint-7").string());
     },
     ""},
    {"CheckpointToResumeOfAnotherProgram",
     [](Workspace& w) {
       fs::create_directories(w.output() / "checkpoint-7");
       w.Write(w.output() / "checkpoint-7/trainer_state.json", "{}");
       w.Train("resume_from_checkpoint", (w.output() / "checkpoint-7").string());
     },
     ""},
    {"RunDirectoryCannotBeMade", [](Workspace& w) { w.AddArgument("--run-dir=/proc/runs"); }, ""},
};

std::string NameOf(const ::testing::TestParamInfo<BadInput>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Manifest, BadInputTest, ::testing::ValuesIn(kManifest), NameOf);
INSTANTIATE_TEST_SUITE_P(Model, BadInputTest, ::testing::ValuesIn(kModel), NameOf);
INSTANTIATE_TEST_SUITE_P(Tokenizer, BadInputTest, ::testing::ValuesIn(kTokenizer), NameOf);
INSTANTIATE_TEST_SUITE_P(Data, BadInputTest, ::testing::ValuesIn(kData), NameOf);
INSTANTIATE_TEST_SUITE_P(Places, BadInputTest, ::testing::ValuesIn(kPlaces), NameOf);

// A port that somebody else listens on.
class TakenPort {
 public:
  TakenPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_, generic, size), 0);
    EXPECT_EQ(listen(socket_, 1), 0);
    EXPECT_EQ(getsockname(socket_, generic, &size), 0);
    text_ = std::to_string(ntohs(address.sin_port));
  }
  ~TakenPort() { close(socket_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  const std::string& text() const { return text_; }

 private:
  int socket_;
  std::string text_;
};

TEST(BadInputTest, PortInUse) {
  const TakenPort port;
  Workspace workspace;
  workspace.AddArgument("--rendezvous-port=" + port.text());
  const RunResult result = workspace.Run();
  EXPECT_EQ(result.errors, "127.0.0.1:" + port.text() +
                               ": cannot listen: Address already in use; choose another port or "
                               "end the program that has it\n");
  EXPECT_EQ(result.exit_code, 2);
}

// The same workspace, unspoiled: what the table shows is the input's doing.
TEST(BadInputTest, GoodInputTrains) {
  Workspace workspace;
  const RunResult result = workspace.Run();
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(fs::exists(workspace.output() / "adapter_model.safetensors"));
}

}  // namespace
}  // namespace everstep::testing
