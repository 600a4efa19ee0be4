#include "worker/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/files.h"
#include "tests/support/paths.h"

namespace everstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class TokenizerTest : public ::testing::Test {
 protected:
  TokenizerTest() {
    directory_ = std::filesystem::temp_directory_path() /
                 ("everstep-tokenizer-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
  }
  ~TokenizerTest() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
  }
  std::string dir() const { return directory_.string(); }

  std::filesystem::path directory_;
};

Tokenizer MustLoad(const std::string& name) {
  auto tokenizer = Tokenizer::Load(TestTokenizerDir(name));
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  return std::move(tokenizer).value();
}

TEST_F(TokenizerTest, EncodesAsLlama31Does) {
  const Tokenizer tokenizer = MustLoad("llama3_1");
  EXPECT_THAT(tokenizer.Encode("Hello, world!", false), ElementsAre(9906, 11, 1917, 0));
  EXPECT_THAT(tokenizer.Encode("Hello<|eot_id|>", true), ElementsAre(128000, 9906, 128009));
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{9906, 11, 1917, 0}), "Hello, world!");
  EXPECT_EQ(tokenizer.vocab_size(), 128256);
  EXPECT_EQ(tokenizer.eos_token(), "<|eot_id|>");
  EXPECT_EQ(tokenizer.pad_token(), std::nullopt);
  EXPECT_EQ(tokenizer.bos_id(), 128000);
  EXPECT_FALSE(tokenizer.add_bos_token());
}

TEST_F(TokenizerTest, SentencePieceTokenizersPutASpaceBeforeEveryText) {
  const Tokenizer tokenizer = MustLoad("llama2");
  EXPECT_TRUE(tokenizer.add_bos_token());
  EXPECT_EQ(tokenizer.Encode("x", true).front(), 1);
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("two words", false)), "two words");
}

TEST_F(TokenizerTest, ABatchGivesWhatSingleTextsGive) {
  const Tokenizer tokenizer = MustLoad("qwen3");
  const std::vector<std::string_view> texts = {"a b c", "", "<|im_start|>user\n", "naïve 你好",
                                               "a b c"};
  const auto batch = tokenizer.EncodeBatch(texts, false);
  ASSERT_EQ(batch.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(batch[i], tokenizer.Encode(texts[i], false)) << texts[i];
  }
}

TEST_F(TokenizerTest, EncodesBytesThatAreNotText) {
  const Tokenizer tokenizer = MustLoad("tiny-llama");
  EXPECT_EQ(tokenizer.Encode("a\xff", false), tokenizer.Encode("a\uFFFD", false));
}

TEST_F(TokenizerTest, KeepsTheIdOfAnAddedTokenThatExistsAndNumbersNewOnes) {
  Tokenizer tokenizer = MustLoad("tiny-llama");
  const int32_t size = tokenizer.vocab_size();
  const auto known = tokenizer.SetEosToken("<|end_of_text|>");
  ASSERT_TRUE(known.has_value());
  EXPECT_EQ(*known, 0);
  EXPECT_EQ(tokenizer.vocab_size(), size);
  const std::string added = "<|mine|>";
  EXPECT_EQ(tokenizer.AddTokens(std::span(&added, 1), true), 1);
  EXPECT_EQ(tokenizer.TokenId(added), size);
  EXPECT_THAT(tokenizer.Encode("<|mine|>", false), ElementsAre(size));
}

TEST_F(TokenizerTest, SavesWhatItLoadsAgain) {
  Tokenizer tokenizer = MustLoad("tiny-mistral");
  ASSERT_TRUE(tokenizer.SetPadToken("<pad>").has_value());
  const std::string stop = "<stop>";
  ASSERT_TRUE(tokenizer.AddTokens(std::span(&stop, 1), true).has_value());
  tokenizer.set_chat_template("{{ messages }}");
  ASSERT_TRUE(tokenizer.Save(dir()).has_value());

  const auto loaded = Tokenizer::Load(dir());
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_EQ(loaded->pad_token(), "<pad>");
  EXPECT_EQ(loaded->TokenId("<stop>"), tokenizer.TokenId("<stop>"));
  EXPECT_EQ(loaded->vocab_size(), tokenizer.vocab_size());
  EXPECT_EQ(loaded->chat_template(), "{{ messages }}");
  EXPECT_EQ(loaded->add_bos_token(), tokenizer.add_bos_token());
  EXPECT_EQ(loaded->Encode("a <stop> b", true), tokenizer.Encode("a <stop> b", true));
  const std::string config = ReadFile(dir() + "/tokenizer_config.json").value();
  EXPECT_THAT(config, Not(HasSubstr("chat_template")));
  EXPECT_THAT(config, HasSubstr("\"additional_special_tokens\""));
}

TEST_F(TokenizerTest, AMissingFileIsAnErrorWithTheRemedy) {
  const auto tokenizer = Tokenizer::Load(dir());
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_THAT(tokenizer.error().message, HasSubstr("tokenizer.json: missing"));
  EXPECT_THAT(tokenizer.error().message, HasSubstr("copy tokenizer.json"));
}

TEST_F(TokenizerTest, ASentencePieceFileAloneIsNamed) {
  Write("tokenizer.model", "");
  const auto tokenizer = Tokenizer::Load(dir());
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_THAT(tokenizer.error().message, HasSubstr("use_fast=True"));
}

TEST_F(TokenizerTest, AFileThatIsNoTokenizerIsAnError) {
  Write("tokenizer.json", "{\"version\": \"1.0\"");
  const auto tokenizer = Tokenizer::Load(dir());
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_THAT(tokenizer.error().message, HasSubstr("tokenizer.json: cannot be used"));
}

TEST_F(TokenizerTest, AMalformedConfigurationNamesFileAndLine) {
  std::filesystem::copy(TestTokenizerDir("tiny-llama") + "/tokenizer.json", directory_);
  Write("tokenizer_config.json", "{\n\"bos_token\": \n}");
  const auto tokenizer = Tokenizer::Load(dir());
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_THAT(tokenizer.error().message, HasSubstr("tokenizer_config.json:3: malformed JSON"));
}

}  // namespace
}  // namespace everstep
