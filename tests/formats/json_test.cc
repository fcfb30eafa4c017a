#include "engine/formats/text/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace msprobe::formats {
namespace {

using ::testing::HasSubstr;

// Walks the whole document; true when it is well formed.
bool Accepts(std::string_view text) {
  JsonCursor json(text);
  json.Skip();
  json.Peek();
  return !json.failed() && json.offset() == text.size();
}

std::string Decoded(std::string_view quoted) {
  JsonCursor json(quoted);
  JsonText text;
  if (!json.String(&text)) return "(error)";
  std::string out;
  AppendJsonText(&out, text);
  return out;
}

TEST(JsonCursor, AcceptsWhatPythonWrites) {
  for (const char* text :
       {"{}", "[]", " [ ] ", "null", "true", "-0", "0.5", "1e-05", "-1.5E+10", "NaN", "Infinity",
        "-Infinity", "{\"a\": [1, {\"b\": null}], \"c\": \"\\u00e9\"}", "[\n 1,\n\t2\r\n]",
        "\"\xc3\xa9\""}) {
    EXPECT_TRUE(Accepts(text)) << text;
  }
}

TEST(JsonCursor, RefusesWhatIsNotJson) {
  for (const char* text : {"",       "{",     "[1,]", "{\"a\":1,}", "{,}", "[1 2]",   "{\"a\" 1}",
                           "{a: 1}", "01",    "1.",   ".5",         "+1",  "1e",      "-",
                           "nul",    "True",  "nan",  "-NaN",       "\"a", "\"\\x\"", "\"\\u12g4\"",
                           "\"\n\"", "[1] 2", "]",    "{\"a\":}",   "'a'"}) {
    EXPECT_FALSE(Accepts(text)) << text;
  }
}

TEST(JsonCursor, EveryPrefixIsTruncatedNotDamaged) {
  const std::string text =
      R"({"a": [1.5e3, -Infinity, NaN, true, null], "b\n": {"c": "x\u0041y"}} )";
  for (size_t n = 0; n + 2 < text.size(); ++n) {
    JsonCursor json(std::string_view(text).substr(0, n));
    EXPECT_FALSE(json.Skip()) << n;
    EXPECT_TRUE(json.truncated()) << n;
  }
  EXPECT_TRUE(Accepts(text));
}

TEST(JsonCursor, ErrorNamesTheByteAndWhatIsThere) {
  JsonCursor json("{\"a\": 1; \"b\": 2}");
  json.Skip();
  EXPECT_EQ(json.Error("d.json").message(),
            "d.json:7: expected ',' or '}', found \"; \\\"b\\\": 2}\"");
  JsonCursor open("[1, 2");
  open.Skip();
  EXPECT_THAT(open.Error("d.json").message(),
              HasSubstr("d.json:5: expected ',' or ']', found the end of the file"));
}

TEST(JsonCursor, NestingIsLimited) {
  EXPECT_TRUE(Accepts(std::string(512, '[') + std::string(512, ']')));
  EXPECT_FALSE(Accepts(std::string(513, '[') + std::string(513, ']')));
  EXPECT_FALSE(Accepts(std::string(1'000'000, '[')));
}

TEST(JsonCursor, FirstErrorSticks) {
  JsonCursor json("[1, x, 2]");
  json.Skip();
  const size_t offset = json.offset();
  std::string_view number;
  EXPECT_FALSE(json.Number(&number));
  EXPECT_FALSE(json.NextItem());
  EXPECT_EQ(json.offset(), offset);
  EXPECT_EQ(offset, 4u);
}

TEST(JsonCursor, StringsOfEveryLengthAndPosition) {
  for (size_t length = 0; length < 40; ++length) {
    for (size_t at = 0; at < length; ++at) {
      std::string plain(length, 'a');
      std::string escaped = plain;
      escaped.replace(at, 1, "\\\"");
      plain[at] = '"';
      EXPECT_EQ(Decoded('"' + escaped + '"'), plain);
      std::string control(length, 'a');
      control[at] = '\x1f';
      EXPECT_EQ(Decoded('"' + control + '"'), "(error)");
      std::string high(length, 'a');
      high[at] = '\xff';
      EXPECT_EQ(Decoded('"' + high + '"'), high);
    }
  }
}

TEST(JsonText, DecodesEscapes) {
  EXPECT_EQ(Decoded(R"("\b\f\n\r\t\/\\\"")"), "\b\f\n\r\t/\\\"");
  EXPECT_EQ(Decoded(R"("\u0041\u00e9\u20ac\ud83d\ude00")"),
            "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(Decoded(R"("\ud83d")"), "\xef\xbf\xbd");
  EXPECT_EQ(Decoded(R"("\ude00x")"), "\xef\xbf\xbdx");
  EXPECT_EQ(Decoded(R"("\ud83d\u0041")"),
            "\xef\xbf\xbd"
            "A");
}

TEST(JsonNumber, ReadsAsPythonDoes) {
  EXPECT_EQ(JsonNumber("0.1"), 0.1);
  EXPECT_EQ(JsonNumber("-3"), -3.0);
  EXPECT_EQ(JsonNumber("5e-324"), 5e-324);
  EXPECT_EQ(JsonNumber("Infinity"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(JsonNumber("-Infinity"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(JsonNumber("1e400"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(JsonNumber("-1e400"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(JsonNumber("1e-400"), 0.0);
  // Many digits may cancel the exponent.
  const std::string zeros(400, '0');
  EXPECT_EQ(JsonNumber("1" + zeros + "e-50"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(JsonNumber("-0." + zeros + "1e+50"), 0.0);
  EXPECT_EQ(JsonNumber("1" + zeros + "e-400"), 1.0);
  EXPECT_EQ(JsonNumber("1e99999999999999999999"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(JsonNumber("1e-99999999999999999999"), 0.0);
  EXPECT_EQ(JsonNumber("0e99999999999999999999"), 0.0);
  EXPECT_EQ(JsonNumber("0." + zeros + "0"), 0.0);
  EXPECT_TRUE(std::isnan(JsonNumber("NaN")));
  EXPECT_TRUE(std::isnan(JsonNumber("abc")));
  EXPECT_TRUE(std::isnan(JsonNumber("")));
}

TEST(ParseJson, KeepsLinesAndKinds) {
  const Result<JsonValue> root = ParseJson(
      "{\n \"task\": \"tensor\",\n \"step\": [\n  1,\n  \"2-4\"\n ], \"on\": true\n}\n", "c.json");
  ASSERT_TRUE(root.ok()) << root.status().message();
  EXPECT_EQ(root->members.size(), 3u);
  EXPECT_EQ(root->members[0].line, 2u);
  EXPECT_EQ(root->Find("task")->text, "tensor");
  EXPECT_EQ(root->Find("step")->line, 3u);
  EXPECT_EQ(root->Find("step")->items[1].line, 5u);
  EXPECT_EQ(root->Find("step")->items[0].text, "1");
  EXPECT_TRUE(root->Find("on")->boolean);
  EXPECT_EQ(root->Find("absent"), nullptr);
}

TEST(ParseJson, ErrorsCountLines) {
  const auto message = [](std::string_view text) {
    return ParseJson(text, "c.json").status().message();
  };
  EXPECT_EQ(message("{\n \"a\": 1,\n}"), "c.json:3: expected '\"' before a key, found \"}\"");
  EXPECT_EQ(message("{\n \"a\": 1,\n \"a\": 2}"), "c.json:3: key \"a\" appears twice");
  EXPECT_EQ(message("{}\n{}"), "c.json:2: expected nothing after the document, found \"{}\"");
  EXPECT_EQ(message("{\"a\": tru}"), "c.json:1: expected true or false, found \"tru}\"");
  EXPECT_EQ(message(""), "c.json:1: expected a value, found the end of the file");
}

}  // namespace
}  // namespace msprobe::formats
