#include "worker/text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.h"

namespace everstep {
namespace {

using ::testing::HasSubstr;

class ChatTemplateTest : public ::testing::Test {
 protected:
  ChatTemplateTest() : tokenizer_(Tokenizer::Load(TestTokenizerDir("tiny-qwen3")).value()) {
    input_.messages = {{{"role", "user"}, {"content", "Hi {\"a\": 1}"}}};
    input_.now = WallTime(std::chrono::seconds(1796040000));  // 30 Nov 2026, 12:00:00 UTC
  }
  std::string Render(std::string_view chat_template) {
    const auto text = RenderChatTemplate(chat_template, tokenizer_, input_);
    return text ? *text : "error: " + text.error().message;
  }

  Tokenizer tokenizer_;
  ChatTemplateInput input_;
};

TEST_F(ChatTemplateTest, RendersTheModelsOwnTemplate) {
  input_.add_generation_prompt = true;
  EXPECT_EQ(Render(*tokenizer_.chat_template()),
            "<|im_start|>user\nHi {\"a\": 1}<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ChatTemplateTest, OffersToolsInPythonsJson) {
  input_.tools = OrderedJson::parse(R"([{"b": [1, 2.5, "é"], "a": {"x": null}}])");
  EXPECT_EQ(Render("{{ tools[0] | tojson }}"), R"({"b": [1, 2.5, "é"], "a": {"x": null}})");
  EXPECT_EQ(Render("{{ tools[0].a | tojson(indent=2) }}"), "{\n  \"x\": null\n}");
}

TEST_F(ChatTemplateTest, OffersSpecialTokensDateAndPythonMethods) {
  EXPECT_EQ(Render("{{ eos_token }}"), "<|im_end|>");
  EXPECT_EQ(Render("{{ strftime_now('%d %b %Y %H:%M') }}"), "30 Nov 2026 12:00");
  EXPECT_EQ(Render("{{ messages[0].content.split(' ')[0].upper() }}"), "HI");
  EXPECT_EQ(Render("{% generation %}x{% endgeneration %}"), "x");
}

TEST_F(ChatTemplateTest, ReportsWhatTheTemplateRaises) {
  EXPECT_THAT(Render("{{ raise_exception('roles must alternate') }}"),
              HasSubstr("roles must alternate"));
}

TEST_F(ChatTemplateTest, ASyntaxErrorNamesTheLine) {
  EXPECT_THAT(Render("\n{% if %}"), HasSubstr("chat template: line 2"));
}

}  // namespace
}  // namespace everstep
