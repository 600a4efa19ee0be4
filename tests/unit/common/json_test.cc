#include "common/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace everstep {
namespace {

using testing::StartsWith;

struct BadJson {
  const char* name;
  std::string text;
  std::string error;
};
void PrintTo(const BadJson& bad, std::ostream* out) { *out << bad.name; }

class BadJsonTest : public testing::TestWithParam<BadJson> {};

TEST_P(BadJsonTest, IsRefusedWithItsLine) {
  const auto json = ParseJson(GetParam().text, "data.json");
  ASSERT_FALSE(json.has_value());
  EXPECT_EQ(json.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(json.error().message, GetParam().error);

  const auto ordered = ParseOrderedJson(GetParam().text, "data.json");
  ASSERT_FALSE(ordered.has_value());
  EXPECT_EQ(ordered.error().message, GetParam().error);
}

const std::string kInValue = "malformed JSON: syntax error while parsing value - ";
const std::string kInObject = "malformed JSON: syntax error while parsing object ";

INSTANTIATE_TEST_SUITE_P(
    All, BadJsonTest,
    testing::Values(
        BadJson{"Empty", "",
                "data.json:1: " + kInValue +
                    "unexpected end of input; expected '[', '{', or a literal"},
        BadJson{"Prose", "hello", "data.json:1: " + kInValue + "invalid literal; last read: 'h'"},
        BadJson{"CutOff", "{\n  \"a\": [1,\n    2",
                "data.json:3: malformed JSON: syntax error while parsing array - unexpected end "
                "of input; expected ']'"},
        BadJson{"MissingComma", "{\n\"a\": 1\n\"b\": 2}\n",
                "data.json:3: " + kInObject + "- unexpected string literal; expected '}'"},
        BadJson{"TrailingComma", "[\n1,\n]",
                "data.json:3: " + kInValue + "unexpected ']'; expected '[', '{', or a literal"},
        // The string begins, and should have ended, in the first line.
        BadJson{"OpenString", "[\"a\n]",
                "data.json:1: " + kInValue +
                    "invalid string: control character U+000A (LF) must be escaped to \\u000A or "
                    "\\n; last read: '\"a<U+000A>'"},
        BadJson{"SecondValue", "{}\n{}",
                "data.json:2: malformed JSON: syntax error while parsing value - unexpected '{'; "
                "expected end of input"},
        BadJson{"NumberTooLarge", "[\n1,\n1e999]",
                "data.json:3: malformed JSON: number overflow parsing '1e999'"},
        BadJson{"NotANumber", "[NaN]",
                "data.json:1: " + kInValue + "invalid literal; last read: '[N'"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(JsonTest, InvalidUtf8IsAnErrorInItsLine) {
  const auto json = ParseJson("[\n\"\xff\"]", "data.json");
  ASSERT_FALSE(json.has_value());
  EXPECT_THAT(json.error().message,
              StartsWith("data.json:2: " + kInValue + "invalid string: ill-formed UTF-8 byte;"));
}

TEST(JsonTest, DeepNestingIsNoStackOverflow) {
  EXPECT_FALSE(ParseJson(std::string(1'000'000, '['), "deep").has_value());
  const auto closed = ParseJson(std::string(100'000, '[') + std::string(100'000, ']'), "deep");
  EXPECT_TRUE(closed.has_value());
}

TEST(JsonTest, OrderedJsonKeepsTheOrderOfKeys) {
  const std::string text = R"({"b":1,"a":{"d":2,"c":3}})";
  EXPECT_EQ(DumpJson(*ParseOrderedJson(text, "x")), text);
  EXPECT_EQ(DumpJson(*ParseJson(text, "x")), R"({"a":{"c":3,"d":2},"b":1})");
}

TEST(JsonTest, DumpIsOneLineOrIndented) {
  const OrderedJson value{{"a", {1, 2.5}}, {"b", "x\n\"y\""}};
  EXPECT_EQ(DumpJson(value), R"({"a":[1,2.5],"b":"x\n\"y\""})");
  EXPECT_EQ(DumpJson(value, 2),
            "{\n  \"a\": [\n    1,\n    2.5\n  ],\n  \"b\": \"x\\n\\\"y\\\"\"\n}");
}

TEST(JsonTest, DumpReplacesWhatIsNoUtf8) {
  EXPECT_EQ(DumpJson(Json("a\xff")), "\"a\xef\xbf\xbd\"");
  EXPECT_EQ(DumpJson(Json("\u00e9")), "\"\u00e9\"");
  EXPECT_EQ(DumpJson(Json(std::nan(""))), "null");
}

TEST(JsonValueTest, IsTheValueOfTheKey) {
  const Json json{
      {"text", "x"}, {"yes", true}, {"whole", -7}, {"real", 1.5}, {"large", 1ULL << 63}};
  EXPECT_EQ(JsonValue<std::string>(json, "text", "?"), "x");
  EXPECT_EQ(JsonValue(json, "yes", false), true);
  EXPECT_EQ(JsonValue(json, "whole", 0), -7);
  EXPECT_EQ(JsonValue(json, "real", 0.0), 1.5);
  EXPECT_EQ(JsonValue(json, "whole", 0.0), -7.0);
  EXPECT_EQ(JsonValue(json, "large", uint64_t{0}), uint64_t{1} << 63);
}

TEST(JsonValueTest, AbsentIsTheFallback) {
  EXPECT_EQ(JsonValue<std::string>(Json::object(), "key", "?"), "?");
  EXPECT_EQ(JsonValue(Json::object(), "key", 3), 3);
  for (const Json& no_object : {Json(), Json("key"), Json::array({"key"}), Json(7)}) {
    EXPECT_EQ(JsonValue(no_object, "key", 3), 3) << no_object;
  }
}

TEST(JsonValueTest, AnotherTypeIsTheFallback) {
  const Json json{{"text", "7"}, {"yes", true}, {"whole", 7}, {"null", nullptr}, {"list", {1}}};
  for (const char* key : {"yes", "whole", "null", "list"}) {
    EXPECT_EQ(JsonValue<std::string>(json, key, "?"), "?") << key;
  }
  for (const char* key : {"text", "yes", "null", "list"}) {
    EXPECT_EQ(JsonValue(json, key, 3), 3) << key;
    EXPECT_EQ(JsonValue(json, key, 3.5), 3.5) << key;
  }
  for (const char* key : {"text", "whole", "null", "list"}) {
    EXPECT_EQ(JsonValue(json, key, true), true) << key;
  }
}

TEST(JsonValueTest, WhatAWholeNumberCannotHoldIsTheFallback) {
  const Json json{{"fraction", 1.5},
                  {"minus", -1},
                  {"above_int", int64_t{1} << 32},
                  {"above_int64", std::numeric_limits<uint64_t>::max()},
                  {"huge", 1e300}};
  EXPECT_EQ(JsonValue(json, "fraction", 3), 3);
  EXPECT_EQ(JsonValue(json, "huge", int64_t{3}), 3);
  EXPECT_EQ(JsonValue(json, "minus", uint64_t{3}), 3u);
  EXPECT_EQ(JsonValue(json, "above_int", 3), 3);
  EXPECT_EQ(JsonValue(json, "above_int", int64_t{3}), int64_t{1} << 32);
  EXPECT_EQ(JsonValue(json, "above_int64", int64_t{3}), 3);
}

}  // namespace
}  // namespace everstep
