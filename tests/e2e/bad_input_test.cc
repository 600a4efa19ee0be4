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
#include "tests/support/paths.h"

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
std::string Refused(const std::string& message) {
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
     "job.yaml: cannot open: No such file or directory\n"},
    {"ManifestEmpty", [](Workspace& w) { w.WriteManifest(""); },
     "job.yaml: is empty: a TrainingJob is needed\n"},
    {"ManifestIsBrokenYaml", [](Workspace& w) { w.WriteManifest("kind: [TrainingJob\n"); },
     "job.yaml:2: malformed YAML: end of sequence flow not found\n"},
    {"ManifestOfAnotherKind",
     [](Workspace& w) {
       w.WriteManifest("apiVersion: batch/v1\nkind: Job\nmetadata: {name: bad}\nspec: {}\n");
     },
     "job.yaml:1: apiVersion: must be everstep.dev/v1alpha1, is \"batch/v1\"\njob.yaml:2: kind: "
     "must be TrainingJob, is \"Job\"\n"},
    {"SpecKeyWithATypo", [](Workspace& w) { w.Spec("recovery: {maxRestart: 3}"); },
     "job.yaml:6: spec.recovery.maxRestart: unknown field (did you mean 'maxRestarts'?)\n"},
    {"NoReplicas", [](Workspace& w) { w.Spec("processesPerReplica: 0"); },
     "job.yaml:6: spec.processesPerReplica: must be at least 1, is 0\n"},
    {"KeyOfTheTrainingFileWithATypo", [](Workspace& w) { w.Train("lora_rnak", "8"); },
     "job.yaml:17: unknown key 'lora_rnak' (did you mean 'lora_rank'?)\n"},
    {"UnknownStage", [](Workspace& w) { w.Train("stage", "sftt"); },
     "job.yaml:8: stage: must be one of pt, sft; is 'sftt'\n"},
    {"NotDoneYet", [](Workspace& w) { w.Train("stage", "dpo"); },
     "job.yaml:8: stage: preference training (dpo) is not done yet: stage is pt or sft\n"},
    {"NoModelNamed", [](Workspace& w) { w.DropTrain("model_name_or_path"); },
     "job.yaml: model_name_or_path: is missing: set it to a model directory or a hub name\n"},
};

const BadInput kModel[] = {
    {"ModelDirectoryMissing",
     [](Workspace& w) { w.Train("model_name_or_path", (w.path() / "modell").string()); },
     Refused("model_name_or_path: 'DIR/modell' is no directory, and no name on the hub "
             "(organization/name): check the path")},
    {"ConfigMissing", [](Workspace& w) { fs::remove(w.model() / "config.json"); },
     Refused("DIR/model/config.json: cannot be read: model_name_or_path must be a Hugging Face "
             "model directory")},
    {"ConfigMalformed",
     [](Workspace& w) { w.Write(w.model() / "config.json", "{\n \"model_type\": \"llama\",\n"); },
     Refused("DIR/model/config.json:3: malformed JSON: syntax error while parsing object key - "
             "unexpected end of input; expected string literal")},
    {"ArchitectureUnknown",
     [](Workspace& w) { w.ModelConfig([](Json& config) { config["model_type"] = "mamba"; }); },
     Refused("DIR/model/config.json: model_type: 'mamba' is not supported: use a llama, mistral, "
             "qwen2 or qwen3 model")},
    {"ConfigLacksASize",
     [](Workspace& w) { w.ModelConfig([](Json& config) { config.erase("hidden_size"); }); },
     Refused("DIR/model/config.json: hidden_size: is missing or not positive: take the config.json "
             "that belongs to the weights")},
    {"HeadsDoNotDivide",
     [](Workspace& w) { w.ModelConfig([](Json& config) { config["num_key_value_heads"] = 3; }); },
     Refused("DIR/model/config.json: num_key_value_heads: must divide num_attention_heads")},
    {"WeightsMissing", [](Workspace& w) { fs::remove(w.model() / "model.safetensors"); },
     Refused("DIR/model: has neither model.safetensors nor model.safetensors.index.json: is it a "
             "model directory?")},
    {"WeightsAsPickle",
     [](Workspace& w) {
       fs::rename(w.model() / "model.safetensors", w.model() / "pytorch_model.bin");
     },
     Refused("DIR/model: the weights are in pytorch_model.bin, a format that can run code when it "
             "is read, and is not read here: convert them to safetensors (load the model with "
             "transformers, save_pretrained)")},
    {"WeightsTruncated", [](Workspace& w) { w.TruncateWeights(1000); },
     Refused(
         "DIR/model/model.safetensors: truncated in tensor "
         "'model.layers.1.self_attn.v_proj.weight': 1000 bytes are missing: download it again")},
    {"WeightsEmpty", [](Workspace& w) { fs::resize_file(w.model() / "model.safetensors", 0); },
     Refused("DIR/model/model.safetensors: is no safetensors file: 0 bytes are less than a header: "
             "download it again")},
    {"WeightsHeaderIsNoJson", [](Workspace& w) { w.WeightsHeaderText("{\"a\": "); },
     Refused("DIR/model/model.safetensors: the header is not JSON: the file is corrupt: download "
             "it again")},
    {"WeightsHeaderIsTooLong",
     [](Workspace& w) {
       w.Write(w.model() / "model.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}"));
     },
     Refused("DIR/model/model.safetensors: is no safetensors file: it announces a header of "
             "9223372036854775807 bytes")},
    {"TensorsOverlap",
     [](Workspace& w) {
       w.WeightsHeader([](Json& header) {
         header["model.norm.weight"]["data_offsets"] =
             header["model.layers.0.input_layernorm.weight"]["data_offsets"];
       });
     },
     Refused("DIR/model/model.safetensors: tensor 'model.layers.0.input_layernorm.weight' overlaps "
             "tensor 'model.norm.weight': the file is corrupt: download it again")},
    {"TensorReachesBeyondTheFile",
     [](Workspace& w) {
       w.WeightsHeader([](Json& header) {
         header["model.norm.weight"]["data_offsets"] = {1U << 30, (1U << 30) + 256};
       });
     },
     Refused("DIR/model/model.safetensors: 1072323584 bytes between tensor "
             "'model.layers.1.self_attn.v_proj.weight' and tensor 'model.norm.weight' belong to no "
             "tensor: the file is corrupt: download it again")},
    {"TensorTypeUnknown",
     [](Workspace& w) {
       w.WeightsHeader([](Json& header) { header["model.norm.weight"]["dtype"] = "F4"; });
     },
     Refused("DIR/model/model.safetensors: tensor 'model.norm.weight': unknown dtype 'F4': convert "
             "the weights to F32 or BF16")},
    {"TensorMissing",
     [](Workspace& w) {
       w.WeightsHeader([](Json& header) {
         header["model.norm.wait"] = header["model.norm.weight"];
         header.erase("model.norm.weight");
       });
     },
     Refused("DIR/model: the weights lack tensor 'model.norm.weight' [64] that config.json calls "
             "for: the files do not belong together")},
    {"TensorOfAnotherShape",
     [](Workspace& w) { w.ModelConfig([](Json& config) { config["intermediate_size"] = 88; }); },
     Refused("DIR/model/model.safetensors: tensor 'model.layers.0.mlp.gate_proj.weight': has shape "
             "[176, 64], config.json asks for [88, 64]")},
    {"ShardMissing",
     [](Workspace& w) {
       fs::remove(w.model() / "model.safetensors");
       w.Write(w.model() / "model.safetensors.index.json",
               R"({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}})");
     },
     Refused("DIR/model/model-00001-of-00002.safetensors: this shard, which the index names, is "
             "missing: download it again")},
    {"ShardIndexMalformed",
     [](Workspace& w) {
       fs::remove(w.model() / "model.safetensors");
       w.Write(w.model() / "model.safetensors.index.json", "{\"weight_map\": [}");
     },
     Refused("DIR/model/model.safetensors.index.json:1: malformed JSON: syntax error while parsing "
             "value - unexpected '}'; expected '[', '{', or a literal")},
    {"LoraTargetNowhere", [](Workspace& w) { w.Train("lora_target", "q_prj"); },
     Refused("lora_target: 'q_prj' is not a module of this model (did you mean 'q_proj'?); there "
             "are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj")},
    {"AdapterMissing",
     [](Workspace& w) { w.Train("adapter_name_or_path", (w.path() / "adapter").string()); },
     Refused("DIR/adapter/adapter_config.json: cannot be read: adapter_name_or_path must be a "
             "directory with a PEFT adapter")},
    {"HubOffline",
     [](Workspace& w) {
       w.Train("model_name_or_path", "everstep-tests/no-such-model");
       w.Spec("env: [{name: HF_HUB_OFFLINE, value: \"1\"}, {name: HF_HOME, value: hub}]");
     },
     Refused("model 'everstep-tests/no-such-model' (revision main) is not in hub/hub, and "
             "HF_HUB_OFFLINE forbids to download it: unset it, or set model_name_or_path to a "
             "directory")},
};

const BadInput kTokenizer[] = {
    {"TokenizerMissing", [](Workspace& w) { fs::remove(w.model() / "tokenizer.json"); },
     Refused("DIR/model/tokenizer.json: missing: model_name_or_path must be a folder with the "
             "model's tokenizer files; copy tokenizer.json and tokenizer_config.json into it")},
    {"TokenizerMalformed",
     [](Workspace& w) { w.Write(w.model() / "tokenizer.json", "{\"version\": \"1.0\""); },
     Refused("DIR/model/tokenizer.json: cannot be used as a tokenizer: EOF while parsing an object "
             "at line 1 column 17; download the file again")},
    {"TokenizerConfigMalformed",
     [](Workspace& w) { w.Write(w.model() / "tokenizer_config.json", "{\n"); },
     Refused("DIR/model/tokenizer_config.json:2: malformed JSON: syntax error while parsing object "
             "key - unexpected end of input; expected string literal")},
    {"TemplateUnknown", [](Workspace& w) { w.Train("template", "lama3"); },
     Refused("template: unknown template 'lama3' (did you mean 'llama3'?); known: default, empty, "
             "fewshot, alpaca, vicuna, deepseek, deepseekcoder, openchat, solar, olmo, xuanyuan, "
             "zephyr, seed_coder, llama2, llama2_zh, mistral, ministral, mistral_small, chatml, "
             "chatml_de, qwen, qwen3, qwen3_nothink, smollm, smollm2, yi, cpm4, opencoder, "
             "intern2, sailor, phi4, llama3, llama4, openchat-3.6, gemma, gemma2, deepseek3, "
             "deepseekr1, phi, phi_small, phi4_mini, starchat, granite3, cohere, yuan")},
    {"TemplateOfAnotherModel", [](Workspace& w) { w.Train("template", "qwen"); },
     Refused("template: 'qwen' needs the token '<|im_start|>', which the tokenizer of 'DIR/model' "
             "lacks; choose the template of this model, or let the vocabulary grow with "
             "'resize_vocab: true' and 'add_special_tokens'")},
    {"VocabularyLargerThanTheModel",
     [](Workspace& w) {
       fs::copy_file(fs::path(TestTokenizerDir("llama3_1")) / "tokenizer.json",
                     w.model() / "tokenizer.json", fs::copy_options::overwrite_existing);
     },
     Refused("DIR/model: the tokenizer makes token 128000 but the model has 2048: set "
             "resize_vocab: true, or use the template and tokenizer that belong to the model")},
};

const BadInput kData[] = {
    {"DatasetInfoMissing", [](Workspace& w) { fs::remove(w.data() / "dataset_info.json"); },
     Refused("DIR/data/dataset_info.json: missing; it describes the data sets: {\"my_data\": "
             "{\"file_name\": \"my_data.json\"}}")},
    {"DatasetInfoMalformed",
     [](Workspace& w) { w.DatasetInfo("{\n \"rows\": {\n  \"file_name\": }\n}"); },
     Refused("DIR/data/dataset_info.json:3: malformed JSON: syntax error while parsing value - "
             "unexpected '}'; expected '[', '{', or a literal")},
    {"DatasetInfoIsAList", [](Workspace& w) { w.DatasetInfo("[]"); },
     Refused("DIR/data/dataset_info.json: must be an object of data sets")},
    {"DatasetNotListed", [](Workspace& w) { w.Train("dataset", "rosw"); },
     Refused("dataset: 'rosw' is not in DIR/data/dataset_info.json (did you mean 'rows'?); there "
             "are: rows")},
    {"DatasetFormatUnknown",
     [](Workspace& w) {
       w.DatasetInfo(R"({"rows": {"file_name": "rows.json", "formatting": "alpacca"}})");
     },
     Refused("DIR/data/dataset_info.json: 'rows': unknown formatting 'alpacca' (did you mean "
             "'alpaca'?); known: alpaca, sharegpt, openai")},
    {"DatasetFileMissing", [](Workspace& w) { fs::remove(w.data() / "rows.json"); },
     Refused("DIR/data/rows.json: there is no such file; check 'file_name' in dataset_info.json "
             "and 'dataset_dir'")},
    {"DatasetFileOfUnknownType",
     [](Workspace& w) {
       fs::rename(w.data() / "rows.json", w.data() / "rows.xml");
       w.DatasetInfo(R"({"rows": {"file_name": "rows.xml"}})");
     },
     Refused("DIR/data/rows.xml: unknown file type '.xml'; known: .json, .jsonl, .csv, .txt")},
    {"RowsMalformed",
     [](Workspace& w) {
       w.Rows("[\n {\"instruction\": \"a\", \"output\": \"b\"},\n {\"instruction\": \"a\",, }\n]");
     },
     Refused("DIR/data/rows.json:3: malformed JSON: syntax error while parsing object key - "
             "unexpected ','; expected string literal")},
    {"RowsAreNoList", [](Workspace& w) { w.Rows("\"rows\""); },
     Refused("DIR/data/rows.json:1: must be an object with the data set's columns")},
    {"RowsEmpty", [](Workspace& w) { w.Rows("[]"); },
     Refused("DIR/data/rows.json: the data set is empty; it must hold at least one example")},
    {"RowsFileEmpty", [](Workspace& w) { w.Rows(""); },
     Refused("DIR/data/rows.json: the data set is empty; it must hold at least one example")},
    {"LineOfJsonLinesMalformed",
     [](Workspace& w) {
       w.DatasetInfo(R"({"rows": {"file_name": "rows.jsonl"}})");
       w.Write(w.data() / "rows.jsonl",
               "{\"instruction\": \"a\", \"output\": \"b\"}\n{\"instruction\": \"a\"\n");
     },
     Refused(
         "DIR/data/rows.jsonl:2: malformed JSON: syntax error while parsing object - unexpected "
         "end of input; expected '}'; a file must be one JSON array, or hold one object a line")},
    {"ColumnMissing",
     [](Workspace& w) {
       w.DatasetInfo(R"({"rows": {"file_name": "rows.json", "columns": {"prompt": "question"}}})");
     },
     Refused("DIR/data/rows.json: has no column 'question'; it has: instruction, input, output; "
             "set 'prompt' under 'columns' of 'rows' in dataset_info.json")},
    {"ColumnKeyUnknown",
     [](Workspace& w) {
       w.DatasetInfo(
           R"({"rows": {"file_name": "rows.json", "columns": {"promt": "instruction"}}})");
     },
     Refused("DIR/data/dataset_info.json: 'rows': unknown key 'promt' in 'columns' (did you mean "
             "'prompt'?)")},
    {"ValueIsNoText",
     [](Workspace& w) { w.Rows(R"([{"instruction": {"a": 1}, "input": "", "output": "b"}])"); },
     Refused("DIR/data/rows.json: row 1: column 'instruction' must be text, is object")},
    {"NothingFitsTheCutoff", [](Workspace& w) { w.Train("cutoff_len", "1"); },
     Refused("cutoff_len: 1 leaves no token to train on in any example: raise it")},
    {"FewerRowsThanOneBatch",
     [](Workspace& w) {
       w.Train("dataloader_drop_last", "true");
       w.Train("per_device_train_batch_size", "8");
     },
     Refused("no step to train: 4 examples make no full batch (dataloader_drop_last is on)")},
    {"MetricNotMeasured",
     [](Workspace& w) {
       w.Train("val_size", "2");
       w.Train("eval_strategy", "steps");
       w.Train("eval_steps", "1");
       w.Train("save_steps", "1");
       w.Train("load_best_model_at_end", "true");
       w.Train("metric_for_best_model", "f1");
     },
     Refused("metric_for_best_model: 'f1' is not measured here: use one of eval_loss")},
};

const BadInput kPlaces[] = {
    {"OutputDirectoryIsAFile", [](Workspace& w) { w.Write(w.output(), "x"); },
     Refused("DIR/out: output_dir is a file: name a directory")},
    {"OutputDirectoryCannotBeMade",
     [](Workspace& w) { w.Train("output_dir", "/proc/everstep/out"); },
     Refused("/proc/everstep/out: cannot create directory: No such file or directory (output_dir): "
             "choose one you may write to")},
    {"OutputDirectoryNotEmpty",
     [](Workspace& w) {
       fs::create_directories(w.output());
       w.Write(w.output() / "thesis.tex", "x");
     },
     Refused("DIR/out: output_dir is not empty and holds no checkpoint to continue from: set "
             "overwrite_output_dir: true or choose another directory")},
    {"CheckpointToResumeMissing",
     [](Workspace& w) {
       w.Train("resume_from_checkpoint", (w.output() / "checkpoint-7").string());
     },
     Refused("resume_from_checkpoint: DIR/out/checkpoint-7: there is no such directory")},
    {"CheckpointToResumeOfAnotherProgram",
     [](Workspace& w) {
       fs::create_directories(w.output() / "checkpoint-7");
       w.Write(w.output() / "checkpoint-7/trainer_state.json", "{}");
       w.Train("resume_from_checkpoint", (w.output() / "checkpoint-7").string());
     },
     Refused("resume_from_checkpoint: DIR/out/checkpoint-7: has no everstep/manifest.json: it is "
             "incomplete or was not written by Everstep: to go on from its weights alone, name it "
             "as model_name_or_path or adapter_name_or_path")},
    {"RunDirectoryCannotBeMade", [](Workspace& w) { w.AddArgument("--run-dir=/proc/runs"); },
     "/proc/runs/bad: cannot create directory: No such file or directory: choose another "
     "--run-dir\n"},
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
