#include "operator/api/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace everstep {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

OrderedJson Value(const std::string& text) {
  const auto document = ParseDocument("x: " + text + "\n", "f.yaml");
  EXPECT_TRUE(document.has_value()) << document.error().message;
  return document ? document->value["x"] : OrderedJson();
}
std::string ErrorOf(const std::string& text) {
  const auto document = ParseDocument(text, "f.yaml");
  return document ? "" : document.error().message;
}

TEST(DocumentTest, ScalarsAreTypedByTheCoreSchema) {
  EXPECT_EQ(DumpJson(Value("12")), "12");
  EXPECT_EQ(DumpJson(Value("-12")), "-12");
  EXPECT_EQ(DumpJson(Value("+12")), "12");
  EXPECT_EQ(Value("1e-4"), 1e-4);
  EXPECT_EQ(Value("2.5"), 2.5);
  EXPECT_EQ(Value(".5"), 0.5);
  EXPECT_EQ(DumpJson(Value("true")), "true");
  EXPECT_EQ(DumpJson(Value("False")), "false");
  EXPECT_TRUE(Value("null").is_null());
  EXPECT_TRUE(Value("~").is_null());
  EXPECT_TRUE(Value("").is_null());
}

TEST(DocumentTest, WhatOnlyLooksLikeANumberIsText) {
  for (const char* text :
       {"1.2.3", "12GB", "0x10", "nan", "inf", "-inf", "yes", "on", "1_0", "2026-11-30", "-nan"}) {
    EXPECT_EQ(Value(text), text);
  }
}

TEST(DocumentTest, QuotedScalarsAreText) {
  EXPECT_EQ(Value("'12'"), "12");
  EXPECT_EQ(Value("\"true\""), "true");
  EXPECT_EQ(Value("''"), "");
}

TEST(DocumentTest, AnIntegerTooLargeIsANumber) {
  EXPECT_TRUE(Value("99999999999999999999").is_number_float());
}

TEST(DocumentTest, KeepsTheOrderOfKeys) {
  const auto document = ParseDocument("z: 1\na: 2\nm: {q: 1, b: 2}\n", "f.yaml");
  EXPECT_EQ(DumpJson(document->value), R"({"z":1,"a":2,"m":{"q":1,"b":2}})");
}

TEST(DocumentTest, KnowsTheLineOfEverything) {
  const auto document = ParseDocument(
      "# comment\n"
      "spec:\n"
      "  replicas: 2\n"
      "  env:\n"
      "    - name: A\n"
      "      value: x\n"
      "    - {name: B}\n",
      "job.yaml");
  ASSERT_TRUE(document.has_value());
  EXPECT_EQ(document->Where("spec"), "job.yaml:2: ");
  EXPECT_EQ(document->Where("spec.replicas"), "job.yaml:3: ");
  EXPECT_EQ(document->Where("spec.env[0]"), "job.yaml:5: ");
  EXPECT_EQ(document->Where("spec.env[0].value"), "job.yaml:6: ");
  EXPECT_EQ(document->Where("spec.env[1].name"), "job.yaml:7: ");
  // What is missing is where its parent is.
  EXPECT_EQ(document->Where("spec.env[1].value"), "job.yaml:7: ");
  EXPECT_EQ(document->Where("spec.rendezvous.port"), "job.yaml:2: ");
  EXPECT_EQ(document->Where("metadata.name"), "job.yaml: ");
}

TEST(DocumentTest, JsonIsRead) {
  const auto document = ParseDocument(
      "{\n  \"kind\": \"TrainingJob\",\n  \"n\": [1, 2.5, \"3\", null, true]\n}\n", "job.json");
  ASSERT_TRUE(document.has_value());
  EXPECT_EQ(DumpJson(document->value), R"({"kind":"TrainingJob","n":[1,2.5,"3",null,true]})");
  EXPECT_EQ(document->Where("n[2]"), "job.json:3: ");
}

TEST(DocumentTest, JsonIndentedWithTabsIsRead) {
  const auto document =
      ParseDocument("{\n\t\"kind\": \"TrainingJob\",\n\t\"n\": 1\n}\n", "job.json");
  ASSERT_TRUE(document.has_value()) << document.error().message;
  EXPECT_EQ(document->value["n"], 1);
}

TEST(DocumentTest, AnchorsAndAliasesAreResolved) {
  const auto document = ParseDocument("a: &x {k: 1}\nb: *x\n", "f.yaml");
  ASSERT_TRUE(document.has_value());
  EXPECT_EQ(DumpJson(document->value), R"({"a":{"k":1},"b":{"k":1}})");
}

TEST(DocumentTest, BlockTextKeepsItsLines) {
  const auto document = ParseDocument("x: |\n  one\n  2\n", "f.yaml");
  EXPECT_EQ(document->value["x"], "one\n2\n");
}

TEST(DocumentTest, AMarkedSingleDocumentIsOne) {
  EXPECT_TRUE(ParseDocument("---\na: 1\n...\n", "f.yaml").has_value());
}

TEST(DocumentTest, NestingAndSizeAreBounded) {
  std::string deep = "x: ";
  for (int i = 0; i < 100; ++i) deep += "[";
  for (int i = 0; i < 100; ++i) deep += "]";
  EXPECT_EQ(ErrorOf(deep), "f.yaml:1: is nested more than 64 levels deep");

  std::string aliases = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    aliases += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 0; k < 9; ++k) aliases += ", " + before;
    aliases += "]\n";
  }
  EXPECT_THAT(ErrorOf(aliases), HasSubstr("holds more than 100000 values"));
}

TEST(DocumentTest, ErrorsNameTheLine) {
  EXPECT_THAT(ErrorOf("a: 1\nb: [1, 2\n"), StartsWith("f.yaml:3: malformed YAML: "));
  EXPECT_THAT(ErrorOf("a: 1\n b: 2\n"), StartsWith("f.yaml:2: malformed YAML: "));
  EXPECT_EQ(ErrorOf("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n"),
            "f.yaml:5: b.c: is given twice (first in line 3): remove one");
  EXPECT_EQ(ErrorOf("? [a, b]\n: 1\n"), "f.yaml:1: a key must be text");
  EXPECT_THAT(ErrorOf("a: *nowhere\n"),
              StartsWith("f.yaml:1: malformed YAML: the referenced anchor is not defined"));
}

}  // namespace
}  // namespace everstep
