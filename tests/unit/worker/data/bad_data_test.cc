// What people get wrong in their data: one clear line each.
#include <gmock/gmock.h>

#include "tests/unit/worker/data/dataset_fixture.h"

namespace everstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kAlpaca = R"([{"instruction": "Say hi", "output": "Hi"}])";

class BadDataTest : public DatasetTest {};

TEST_F(BadDataTest, UnknownDataSetNamesTheNearest) {
  Write("dataset_info.json", R"({"my_alpaca": {"file_name": "a.json"}, "other": {}})");
  config_.data.dataset = {"my_alpca"};
  EXPECT_THAT(Failure(), AllOf(HasSubstr("'my_alpca' is not in dataset_info.json"),
                               HasSubstr("did you mean 'my_alpaca'?"), HasSubstr("other")));
}

TEST_F(BadDataTest, MissingFolderAndMissingInfo) {
  EXPECT_THAT(Failure(), HasSubstr("dataset_info.json: missing"));
  config_.data.dataset_dir += "/nowhere";
  EXPECT_THAT(Failure(), HasSubstr("dataset_dir: there is no folder"));
}

TEST_F(BadDataTest, MalformedInfoNamesTheLine) {
  Write("dataset_info.json", "{\n\"d\": {,}\n}");
  EXPECT_THAT(Failure(), HasSubstr("dataset_info.json:2: malformed JSON"));
}

TEST_F(BadDataTest, MissingFile) {
  WriteInfo(R"({"file_name": "gone.json"})");
  EXPECT_THAT(Failure(),
              AllOf(HasSubstr("gone.json: there is no such file"), HasSubstr("check 'file_name'")));
}

TEST_F(BadDataTest, ColumnThatTheFileLacksNamesThoseThereAre) {
  WriteSet("a.json", R"([{"question": "Say hi", "output": "Hi"}])",
           R"(, "columns": {"prompt": "qestion", "response": "output"})");
  EXPECT_THAT(Failure(), AllOf(HasSubstr("a.json: has no column 'qestion'"),
                               HasSubstr("did you mean 'question'?"),
                               HasSubstr("it has: question, output"), HasSubstr("'prompt'")));
}

TEST_F(BadDataTest, AnswersAreNeededWithoutColumnsToo) {
  WriteSet("a.json", R"([{"instruction": "Say hi", "answer": "Hi"}])");
  EXPECT_THAT(Failure(), HasSubstr("has no column 'output'"));
}

TEST_F(BadDataTest, MalformedJsonNamesTheLine) {
  WriteSet("a.json", "[\n{\"instruction\": \"x\",\n \"output\" \"y\"}\n]");
  EXPECT_THAT(Failure(), HasSubstr("a.json:3: malformed JSON"));
  WriteSet("a.jsonl", "{\"instruction\": \"x\", \"output\": \"y\"}\n\n{\"instruction\": }\n");
  EXPECT_THAT(Failure(), HasSubstr("a.jsonl:3: malformed JSON"));
}

TEST_F(BadDataTest, EmptyDataSet) {
  WriteSet("a.json", "[]");
  EXPECT_THAT(Failure(), HasSubstr("a.json: the data set is empty"));
  WriteSet("b.jsonl", "");
  EXPECT_THAT(Failure(), HasSubstr("b.jsonl: the data set is empty"));
}

TEST_F(BadDataTest, EveryExampleDropped) {
  WriteSet("a.json", R"([{"instruction": "Say hi", "output": null}])");
  EXPECT_THAT(Failure(), AllOf(HasSubstr("1 of 1 training examples"), HasSubstr("a.json: row 1"),
                               HasSubstr("nothing is left")));
}

TEST_F(BadDataTest, WrongTurnsAreCountedAndDropped) {
  WriteSet("a.jsonl",
           "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"},"
           " {\"from\": \"gpt\", \"value\": \"b\"}]}\n"
           "{\"conversations\": [{\"from\": \"gpt\", \"value\": \"b\"},"
           " {\"from\": \"human\", \"value\": \"a\"}]}\n",
           R"(, "formatting": "sharegpt")");
  const auto prepared = Prepare();
  ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
  EXPECT_EQ(prepared->train.size(), 1u);
  EXPECT_EQ(prepared->dropped_examples, 1);
  ASSERT_EQ(prepared->warnings.size(), 1u);
  EXPECT_THAT(prepared->warnings[0], AllOf(HasSubstr("1 of 2"), HasSubstr("a.jsonl:2")));
}

TEST_F(BadDataTest, ValuesOfAWrongType) {
  WriteSet("a.json", R"([{"instruction": "x", "output": "y"}, {"instruction": 7, "output": "y"}])");
  EXPECT_THAT(Failure(), HasSubstr("a.json: row 2: column 'instruction' must be text, is number"));
  WriteSet("b.json", R"([["x"]])");
  EXPECT_THAT(Failure(), HasSubstr("b.json: row 1: must be an object"));
}

TEST_F(BadDataTest, MessageWithoutRole) {
  WriteSet("a.json", R"([{"conversations": [{"role": "user", "content": "x"}]}])",
           R"(, "formatting": "sharegpt")");
  EXPECT_THAT(Failure(), AllOf(HasSubstr("message 1 has no 'from'"), HasSubstr("'tags'")));
}

TEST_F(BadDataTest, ToolsThatAreNoJson) {
  WriteSet("a.json", R"([{"instruction": "x", "output": "y", "tools": "[{"}])",
           R"(, "columns": {"prompt": "instruction", "response": "output", "tools": "tools"})");
  EXPECT_THAT(Failure(), HasSubstr("a.json: row 1: the tools must be JSON"));
}

TEST_F(BadDataTest, FilesThatCannotBeRead) {
  WriteSet("a.parquet", "PAR1");
  EXPECT_THAT(Failure(), AllOf(HasSubstr("a.parquet: parquet files cannot be read"),
                               HasSubstr("convert it to jsonl")));
  WriteSet("a.xml", "<a/>");
  EXPECT_THAT(Failure(), HasSubstr("unknown file type '.xml'"));
}

TEST_F(BadDataTest, SourcesThatAreNotSupported) {
  WriteInfo(R"({"hf_hub_url": "someone/data"})");
  EXPECT_THAT(Failure(), HasSubstr("'hf_hub_url' is not supported; download"));
  WriteInfo(R"({"file_name": "a.json", "ranking": true})");
  EXPECT_THAT(Failure(), HasSubstr("ranking: true"));
  WriteInfo(R"({"file_name": "a.json", "formatting": "sharegp"})");
  EXPECT_THAT(Failure(), HasSubstr("did you mean 'sharegpt'?"));
}

TEST_F(BadDataTest, UnknownKeysInAnEntryAreWarnedOf) {
  WriteSet("a.json", kAlpaca, R"(, "colour": "blue")");
  const auto prepared = Prepare();
  ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
  ASSERT_EQ(prepared->warnings.size(), 1u);
  EXPECT_THAT(prepared->warnings[0], HasSubstr("unknown key 'colour'; it has no effect"));
}

TEST_F(BadDataTest, ATypoInAnEntryIsNot) {
  WriteSet("a.json", kAlpaca, R"(, "colums": {})");
  EXPECT_THAT(Failure(), HasSubstr("unknown key 'colums' (did you mean 'columns'?)"));
  WriteSet("a.json", kAlpaca, R"(, "columns": {"promt": "instruction"})");
  EXPECT_THAT(Failure(), HasSubstr("unknown key 'promt' in 'columns' (did you mean 'prompt'?)"));
  WriteSet("a.json", kAlpaca, R"(, "tags": {"rol_tag": "role"})");
  EXPECT_THAT(Failure(), HasSubstr("unknown key 'rol_tag' in 'tags' (did you mean 'role_tag'?)"));
}

TEST_F(BadDataTest, CsvWithTooManyFields) {
  WriteSet("a.csv", "instruction,output\nx,y\nx,y,z\n");
  EXPECT_THAT(Failure(), HasSubstr("a.csv:3: has 3 fields, the header has 2"));
  WriteSet("b.csv", "instruction,output\n\"x,y\n");
  EXPECT_THAT(Failure(), HasSubstr("b.csv:2: a quoted field does not end"));
}

TEST_F(BadDataTest, UnknownTemplateAndToolFormat) {
  WriteSet("a.json", kAlpaca);
  config_.data.template_name = "lama3";
  EXPECT_THAT(Failure(), HasSubstr("unknown template 'lama3' (did you mean 'llama3'?)"));
  config_.data.template_name = "llama3";
  config_.data.tool_format = "qwn";
  EXPECT_THAT(Failure(), HasSubstr("did you mean 'qwen'?"));
}

TEST_F(BadDataTest, TemplateOfAnotherModelNamesTheMissingToken) {
  WriteSet("a.json", kAlpaca);
  EXPECT_THAT(Failure("tiny-qwen3"),
              AllOf(HasSubstr("template: 'llama3' needs the token '<|start_header_id|>'"),
                    HasSubstr("'the-model' lacks"), HasSubstr("resize_vocab")));
}

TEST_F(BadDataTest, AGrowingVocabularyMayTakeAnyTemplate) {
  WriteSet("a.json", kAlpaca);
  config_.data.template_name = "chatml";
  config_.model.resize_vocab = true;
  const auto prepared = Prepare();
  ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
  EXPECT_EQ(prepared->new_tokens, 2);
}

TEST_F(BadDataTest, TooLittleText) {
  WriteSet("a.txt", "a few words\n");
  WriteInfo(R"({"file_name": "a.txt", "columns": {"prompt": "text"}})");
  config_.finetuning.stage = Stage::kPt;
  config_.data.packing = true;
  EXPECT_THAT(Failure(), AllOf(HasSubstr("cutoff_len: all training text together is shorter"),
                               HasSubstr("packing: false")));
}

TEST_F(BadDataTest, ASplitThatTakesEverything) {
  WriteSet("a.json", kAlpaca);
  config_.data.val_size = 0.5;
  EXPECT_THAT(Failure(), HasSubstr("val_size: leaves no examples to train on"));
}

}  // namespace
}  // namespace everstep
