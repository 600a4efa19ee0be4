#include "worker/data/prepare.h"

#include <gmock/gmock.h>

#include "tests/unit/worker/data/dataset_fixture.h"
#include "worker/data/packing.h"
#include "worker/data/supervised.h"
#include "worker/data/template_parse.h"
#include "worker/data/template_setup.h"
#include "worker/text/chat_template.h"

namespace everstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PrepareTest : public DatasetTest {
 protected:
  std::vector<std::string> Texts(const std::string& tokenizer) {
    auto loaded = Tokenizer::Load(TestTokenizerDir(tokenizer)).value();
    const auto prepared = PrepareData(config_, loaded, GoldenDay());
    EXPECT_TRUE(prepared.has_value()) << prepared.error().message;
    std::vector<std::string> texts;
    if (!prepared) return texts;
    for (const Example& example : prepared->train) texts.push_back(loaded.Decode(example.ids));
    return texts;
  }
};

TEST_F(PrepareTest, ReadsCsvTextAndFolders) {
  WriteSet("a.csv", "\xEF\xBB\xBFinstruction,output\r\n\"say \"\"a, b\"\"\",\"two\nlines\"\r\n");
  config_.data.template_name = "empty";
  EXPECT_THAT(Texts("tiny-llama"), ElementsAre("say \"a, b\"two\nlines"));

  Write("many/2.jsonl", R"({"instruction": "b", "output": "2"})");
  Write("many/1.jsonl", R"({"instruction": "a", "output": "1"})");
  WriteInfo(R"({"file_name": "many"})");
  EXPECT_THAT(Texts("tiny-llama"), ElementsAre("a1", "b2"));

  WriteSet("a.txt", "one\r\ntwo\n", R"(, "columns": {"prompt": "text"})");
  config_.finetuning.stage = Stage::kPt;
  EXPECT_THAT(Texts("tiny-llama"), ElementsAre("one<|eot_id|>", "two<|eot_id|>"));
}

TEST_F(PrepareTest, WithoutATemplateTheTokenizersOwnIsUsed) {
  WriteSet("a.json", R"([{"instruction": "Say hi", "output": "Hi", "s": "Be brief."}])",
           R"(, "columns": {"prompt": "instruction", "response": "output", "system": "s"})");
  const std::vector<std::string> named = Texts("tiny-llama");
  config_.data.template_name = "";
  EXPECT_EQ(Texts("tiny-llama"), named);

  config_.data.template_name = "qwen3";
  const std::vector<std::string> named_reasoning = Texts("tiny-qwen3");
  config_.data.template_name = "";
  EXPECT_EQ(Texts("tiny-qwen3"), named_reasoning);
}

TEST_F(PrepareTest, AChatTemplateThatRefusesSaysWhatToDo) {
  Tokenizer tokenizer = Tokenizer::Load(TestTokenizerDir("tiny-llama")).value();
  tokenizer.set_chat_template("{{ raise_exception('no system') }}");
  const auto format = ParseChatTemplate(tokenizer, GoldenDay());
  ASSERT_FALSE(format.has_value());
  EXPECT_THAT(format.error().message, HasSubstr("no system"));
  EXPECT_THAT(format.error().message, HasSubstr("set 'template'"));
}

TEST_F(PrepareTest, TheChatTemplateThatIsSavedWritesTheTrainedFormat) {
  WriteSet("a.json", R"([{"instruction": "It's \\ a", "output": "B"}])");
  for (const char* name : {"vicuna", "alpaca", "default", "chatml"}) {
    const std::string model = name == std::string("chatml") ? "tiny-qwen3" : "tiny-llama";
    config_.data.template_name = name;
    auto tokenizer = Tokenizer::Load(TestTokenizerDir(model)).value();
    const auto prepared = PrepareData(config_, tokenizer, GoldenDay());
    ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
    ChatTemplateInput input;
    input.messages = {{{"role", "user"}, {"content", "It's \\ a"}},
                      {{"role", "assistant"}, {"content", "B"}}};
    const auto text = RenderChatTemplate(*tokenizer.chat_template(), tokenizer, input);
    ASSERT_TRUE(text.has_value()) << text.error().message;
    EXPECT_EQ(*text, tokenizer.Decode(prepared->train[0].ids)) << name;
  }
}

TEST_F(PrepareTest, OpenAiToolCallsAndTheirResults) {
  WriteSet("a.jsonl",
           R"({"messages": [{"role": "user", "content": "Q"},)"
           R"({"role": "assistant", "content": null, "tool_calls": [{"type": "function",)"
           R"("function": {"name": "f", "arguments": {"x": 1.0}}}]},)"
           R"({"role": "tool", "content": "r1"}, {"role": "tool", "content": "r2"},)"
           R"({"role": "assistant", "content": "A"}],)"
           R"("tools": [{"name": "f", "parameters": {}}]})",
           R"(, "formatting": "openai", "columns": {"messages": "messages", "tools": "tools"},)"
           R"("tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user",)"
           R"("assistant_tag": "assistant", "observation_tag": "tool"})");
  config_.data.template_name = "qwen3_nothink";
  const std::vector<std::string> texts = Texts("tiny-qwen3");
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_THAT(texts[0], HasSubstr("<tools>\n{\"type\": \"function\", \"function\": {\"name\": "
                                  "\"f\", \"parameters\": {}}}\n</tools>"));
  EXPECT_THAT(texts[0], HasSubstr("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1.0}}\n"
                                  "</tool_call><|im_end|>"));
  EXPECT_THAT(texts[0], HasSubstr("<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n"
                                  "</tool_response><|im_end|>"));
}

TEST_F(PrepareTest, EvaluationSetsKeepTheirNames) {
  Write("a.json", R"([{"instruction": "a", "output": "1"}])");
  Write("b.json", R"([{"instruction": "b", "output": "2"}, {"instruction": "c", "output": "3"}])");
  Write("dataset_info.json", R"({"d": {"file_name": "a.json"}, "e": {"file_name": "b.json"}})");
  config_.data.eval_dataset = {"d", "e"};
  auto together = Prepare();
  ASSERT_TRUE(together.has_value()) << together.error().message;
  ASSERT_EQ(together->eval.size(), 1u);
  EXPECT_EQ(together->eval[0].first, "");
  EXPECT_EQ(together->eval[0].second.size(), 3u);
  config_.data.eval_on_each_dataset = true;
  auto each = Prepare();
  ASSERT_TRUE(each.has_value());
  ASSERT_EQ(each->eval.size(), 2u);
  EXPECT_EQ(each->eval[1].first, "e");
  EXPECT_EQ(each->eval[1].second.size(), 2u);
}

TEST(FitTurnTest, CutsTheLongerSideOrBothInProportion) {
  EXPECT_EQ(FitTurn(100, 10, 50).source, 40);  // a short answer is kept whole
  EXPECT_EQ(FitTurn(10, 100, 50).target, 40);  // a short question is kept whole
  const TurnLengths both = FitTurn(30, 60, 45);
  EXPECT_EQ(both.source, 15);
  EXPECT_EQ(both.target, 30);
}

TEST(BuildExampleTest, MarksTheEndOfEveryAnswerWithEfficientEos) {
  const std::vector<EncodedTurn> turns = {{{1, 2}, {3}}, {{4, 5}, {6}}};
  const Example example = BuildExample(turns, {.cutoff_len = 100}, /*efficient_eos=*/true, 9);
  EXPECT_THAT(example.ids, ElementsAre(1, 2, 3, 4, 5, 6, 9));
  EXPECT_THAT(example.labels, ElementsAre(-100, -100, 3, 9, -100, 6, 9));
}

Example Sequence(std::vector<int32_t> ids) { return {.ids = ids, .labels = ids}; }

TEST(PackExamplesTest, FillsRowsGreedilyAndLeavesOutWhatFitsNowhere) {
  std::vector<Example> examples = {Sequence({1, 1, 1}), Sequence({2, 2}), Sequence({3, 3, 3}),
                                   Sequence({4, 4, 4, 4, 4, 4})};
  const PackedRows packed = PackExamples(examples, {.row_length = 6, .neat = true, .pad_id = 0});
  EXPECT_EQ(packed.too_long, 1);
  ASSERT_EQ(packed.rows.size(), 2u);
  // Of two equally long sequences the later one goes first.
  EXPECT_THAT(packed.rows[0].ids, ElementsAre(3, 3, 3, 2, 2, 0));
  EXPECT_THAT(packed.rows[0].labels, ElementsAre(3, 3, 3, 2, 2, -100));
  EXPECT_THAT(packed.rows[0].positions, ElementsAre(0, 1, 2, 0, 1, 0));
  EXPECT_THAT(packed.rows[0].segments, ElementsAre(1, 1, 1, 2, 2, 0));
  EXPECT_THAT(packed.rows[1].ids, ElementsAre(1, 1, 1, 0, 0, 0));
}

TEST(MapBatchesTest, CutsContiguousSharesIntoBatches) {
  EXPECT_THAT(MapBatches(7, 2, 3), ElementsAre(std::pair(0, 3), std::pair(3, 4), std::pair(4, 7)));
  EXPECT_THAT(MapBatches(2, 16, 1000), ElementsAre(std::pair(0, 1), std::pair(1, 2)));
  EXPECT_TRUE(MapBatches(0, 4, 10).empty());
}

}  // namespace
}  // namespace everstep
