#include "engine/base/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <utility>

namespace msprobe {
namespace {

std::string PythonFloat(double value) {
  std::string text;
  AppendPythonFloat(&text, value);
  return text;
}

std::string Json(std::string_view text) {
  std::string out;
  AppendJsonString(&out, text);
  return out;
}

// Python's float_repr_style "short", from its definition: the fewest digits that read back as the
// value, with an exponent below 1e-4 and from 1e16 on.
std::string Repr(double value) {
  char buffer[40];
  for (int precision = 0;; ++precision) {
    std::snprintf(buffer, sizeof(buffer), "%.*e", precision, value);
    if (std::strtod(buffer, nullptr) == value) break;
  }
  std::string text = buffer;  // [-]d[.ddd]e[+-]dd
  const std::string sign = text[0] == '-' ? "-" : "";
  text.erase(0, sign.size());
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  std::string digits = text.substr(0, 1) + (e > 2 ? text.substr(2, e - 2) : "");
  if (value != 0 && (exponent < -4 || exponent >= 16)) return sign + text;
  if (exponent < 0) return sign + "0." + std::string(-exponent - 1, '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string PythonFloat32(double value) {
  std::string text;
  AppendPythonFloat32(&text, value);
  return text;
}

TEST(PythonFloat32, HasTheDigitsOfAFloat) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::pair<double, std::string> cases[] = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {2.0, "2.0"},
      {16777216.0, "16777216.0"},
      {4.562695503234863, "4.5626955"},
      {0.1, "0.1"},
      {-1e-5, "-1e-05"},
      {1e20, "1e+20"},
      {kInf, "Infinity"},
      {-kInf, "-Infinity"},
      {std::nan(""), "NaN"},
      {1e300, "1e+300"},
      {1e-300, "1e-300"},
      {1.0000000001e-40, "1.0000000001e-40"},
  };
  for (const auto& [value, text] : cases) EXPECT_EQ(PythonFloat32(value), text);
}

TEST(PythonFloat32, ReadsBackAsTheSameFloat) {
  std::mt19937 random(3);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    const std::string text = PythonFloat32(value);
    const double read = std::strtod(text.c_str(), nullptr);
    ASSERT_EQ(RoundToFloat32(read), value) << text;
    ASSERT_NE(text.find_first_of(".e"), std::string::npos) << text;  // not an integer
    ASSERT_EQ(RoundToFloat32(value), value);
  }
}

TEST(Base64, EightBytesThereAndBack) {
  const auto text_of = [](uint64_t value) {
    std::string text;
    AppendBase64(&text, value);
    return text;
  };
  EXPECT_EQ(text_of(0x0123456789abcdef), "ASNFZ4mrze8");  // base64.urlsafe_b64encode
  EXPECT_EQ(text_of(0xfbff00000000003f), "~_8AAAAAAD8");
  EXPECT_EQ(ParseBase64("-_8AAAAAAD8"), 0xfbff00000000003f);  // the spelling of earlier dumps
  std::mt19937_64 random(4);
  for (int i = 0; i < 10000; ++i) {
    const uint64_t value = random();
    ASSERT_EQ(ParseBase64(text_of(value)), value);
  }
  for (const std::string_view wrong :
       {"", "ASNFZ4mrze", "ASNFZ4mrze8A", "ASNFZ4mrze9", "ASNFZ4mr=e8",
        "ASNFZ4mr\xff"
        "e8"})
    EXPECT_EQ(ParseBase64(wrong), std::nullopt) << wrong;
}

// Printed by Python 3's repr.
TEST(PythonFloat, SpelledAsPythonSpellsIt) {
  const std::pair<double, std::string> cases[] = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {-1.5, "-1.5"},
      {0.1, "0.1"},
      {1.0 / 3, "0.3333333333333333"},
      {100000.0, "100000.0"},
      {1e15, "1000000000000000.0"},
      {9999999999999998.0, "9999999999999998.0"},
      {1e16, "1e+16"},
      {1.5e16, "1.5e+16"},
      {1e22, "1e+22"},
      {1e100, "1e+100"},
      {0.0001, "0.0001"},
      {0.00012345, "0.00012345"},
      {9.999999999999999e-05, "9.999999999999999e-05"},
      {1e-05, "1e-05"},
      {1e-100, "1e-100"},
      {5e-324, "5e-324"},
      {2.2250738585072014e-308, "2.2250738585072014e-308"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {static_cast<double>(0.1f), "0.10000000149011612"},
  };
  for (const auto& [value, text] : cases) EXPECT_EQ(PythonFloat(value), text);
}

TEST(PythonFloat, NotFiniteAsJsonDumpsWrites) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(PythonFloat(infinity), "Infinity");
  EXPECT_EQ(PythonFloat(-infinity), "-Infinity");
  EXPECT_EQ(PythonFloat(nan), "NaN");
  EXPECT_EQ(PythonFloat(-nan), "NaN");
}

TEST(PythonFloat, FewestDigitsThatReadBack) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double value = std::bit_cast<double>(bits);
    if (i % 3 == 1) value = std::bit_cast<float>(static_cast<uint32_t>(bits));  // what tensors hold
    if (i % 3 == 2) value = static_cast<double>(bits % 2000000) / 1000 * (i % 2 ? 1e12 : 1e-4);
    if (!std::isfinite(value)) continue;
    const std::string text = PythonFloat(value);
    ASSERT_EQ(text, Repr(value));
    ASSERT_EQ(std::strtod(text.c_str(), nullptr), value);
  }
}

TEST(Numbers, IntegersAtTheirLimits) {
  std::string text;
  AppendInteger(&text, std::numeric_limits<int64_t>::min());
  text += ' ';
  AppendInteger(&text, 0);
  text += ' ';
  AppendInteger(&text, std::numeric_limits<int64_t>::max());
  text += ' ';
  AppendUnsigned(&text, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(text, "-9223372036854775808 0 9223372036854775807 18446744073709551615");
}

TEST(Numbers, HexIsPaddedAndLowerCase) {
  std::string text;
  AppendHex(&text, 0xabc, 8);
  text += ' ';
  AppendHex(&text, 0, 1);
  text += ' ';
  AppendHex(&text, 0x0123456789abcdef, 16);
  text += ' ';
  AppendHex(&text, 0xff00ff, 4);  // the low digits
  EXPECT_EQ(text, "00000abc 0 0123456789abcdef 00ff");
}

// Printed by Python 3's json.dumps.
TEST(JsonString, SpelledAsJsonDumpsSpellsIt) {
  EXPECT_EQ(Json(""), R"("")");
  EXPECT_EQ(Json("a \"b\" \\ /"), R"("a \"b\" \\ /")");
  EXPECT_EQ(Json("\n\r\t\b\f"), R"("\n\r\t\b\f")");
  EXPECT_EQ(Json(std::string_view("\0\x1f\x7f", 3)), R"("\u0000\u001f\u007f")");
  EXPECT_EQ(Json("\xc3\xa9"), R"("\u00e9")");
  EXPECT_EQ(Json("\xe2\x82\xac"), R"("\u20ac")");
  EXPECT_EQ(Json("\xf0\x9f\x98\x80."), R"("\ud83d\ude00.")");
  EXPECT_EQ(Json("\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xef\xbf\xbf"),
            R"("\u0080 \u07ff \u0800 \uffff")");
  EXPECT_EQ(Json("\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf"), R"("\ud800\udc00 \udbff\udfff")");
}

TEST(JsonString, InvalidUtf8BecomesTheReplacementCharacter) {
  EXPECT_EQ(Json("\x80"), R"("\ufffd")");                      // a lone continuation byte
  EXPECT_EQ(Json("\xc3"), R"("\ufffd")");                      // cut off
  EXPECT_EQ(Json("\xe2\x82"), R"("\ufffd\ufffd")");            // cut off
  EXPECT_EQ(Json("\xc3(a"), R"("\ufffd(a")");                  // what follows is kept
  EXPECT_EQ(Json("\xc0\xaf"), R"("\ufffd\ufffd")");            // '/' in two bytes
  EXPECT_EQ(Json("\xe0\x80\xaf"), R"("\ufffd\ufffd\ufffd")");  // '/' in three
  EXPECT_EQ(Json("\xed\xa0\x80"), R"("\ufffd\ufffd\ufffd")");  // a surrogate
  EXPECT_EQ(Json("\xf4\x90\x80\x80").size(), 4u * 6 + 2);      // above U+10FFFF
  EXPECT_EQ(Json("\xf0\x8f\xbf\xbf").size(), 4u * 6 + 2);      // U+FFFF in four bytes
  EXPECT_EQ(Json("\xf8\x90\x80\x80").size(), 4u * 6 + 2);      // a lead byte of five
  // Bytes after the end are not read.
  EXPECT_EQ(Json(std::string_view("\xe2\x82\xac", 2)), R"("\ufffd\ufffd")");
  EXPECT_EQ(Json(std::string_view("\xc3\xa9", 1)), R"("\ufffd")");
  EXPECT_EQ(Json("\xff\xfe"), R"("\ufffd\ufffd")");
}

TEST(JsonString, EveryCharacterAtEveryPlace) {
  for (int c = 0; c < 0x80; ++c) {
    const std::string alone(1, static_cast<char>(c)), escaped = Json(alone);
    for (size_t before = 0; before < 37; ++before) {
      const std::string a(before, 'a'), b(36 - before, '~');
      EXPECT_EQ(Json(a + alone + b), "\"" + a + escaped.substr(1, escaped.size() - 2) + b + "\"");
    }
  }
}

TEST(NearestSpelling, ASlipOfTheFingersAndNoMore) {
  const std::string_view verbs[] = {"compare", "recover", "show", "version"};
  EXPECT_EQ(NearestSpelling("compare", verbs), "compare");
  EXPECT_EQ(NearestSpelling("comprae", verbs), "compare");
  EXPECT_EQ(NearestSpelling("recovr", verbs), "recover");
  EXPECT_EQ(NearestSpelling("shw", verbs), "show");
  EXPECT_EQ(NearestSpelling("shoow", verbs), "show");
  EXPECT_EQ(NearestSpelling("shxx", verbs), "");
  EXPECT_EQ(NearestSpelling("dump", verbs), "");
  EXPECT_EQ(NearestSpelling("", verbs), "");
  EXPECT_EQ(NearestSpelling("compare", {}), "");
}

TEST(NearestSpelling, TheNearestOfSeveral) {
  const std::string_view names[] = {"ranks", "rank", "tank"};
  EXPECT_EQ(NearestSpelling("rankk", names), "ranks");  // distance 1 to both: the first is chosen
  EXPECT_EQ(NearestSpelling("ran", names), "rank");
  EXPECT_EQ(NearestSpelling("tanks", names), "ranks");
  EXPECT_EQ(NearestSpelling("tank", names), "tank");
}

TEST(NearestSpelling, NeighboursSwapped) {
  const std::string_view keys[] = {"task", "list", "level"};
  EXPECT_EQ(NearestSpelling("taks", keys), "task");
  EXPECT_EQ(NearestSpelling("lsit", keys), "list");
  EXPECT_EQ(NearestSpelling("kast", keys), "");  // not neighbours: two errors
}

TEST(AppendValidUtf8, ReplacesInvalidBytes) {
  const auto valid = [](std::string_view text) {
    std::string out = ">";
    AppendValidUtf8(&out, text);
    return out;
  };
  EXPECT_EQ(valid(""), ">");
  EXPECT_EQ(valid("plain"), ">plain");
  EXPECT_EQ(valid("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
            ">\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(valid("a\xfe"), ">a\xef\xbf\xbd");
  EXPECT_EQ(valid("\xe2\x82"), ">\xef\xbf\xbd\xef\xbf\xbd");    // cut off inside a character
  EXPECT_EQ(valid("\xc0\x80!"), ">\xef\xbf\xbd\xef\xbf\xbd!");  // an overlong encoding
}

TEST(NaturalLess, DigitsAreNumbers) {
  const std::string_view sorted[] = {"",    "a",    "a01",  "a1",    "a2",
                                     "a10", "a10b", "b1/2", "b1/11", "b2"};
  for (size_t i = 0; i < std::size(sorted); ++i) {
    for (size_t j = 0; j < std::size(sorted); ++j)
      EXPECT_EQ(NaturalLess(sorted[i], sorted[j]), i < j) << sorted[i] << " " << sorted[j];
  }
}

TEST(Trim, BlanksAtBothEndsOnly) {
  for (const std::string_view blank : {"", " ", " \t\r\n "}) EXPECT_EQ(Trim(blank), "");
  EXPECT_EQ(Trim("a b"), "a b");
  EXPECT_EQ(Trim("\t a b\r\n"), "a b");
}

TEST(Split, KeepsEmptyParts) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(Split("", '.'), Parts{""});
  EXPECT_EQ(Split("a", '.'), Parts{"a"});
  EXPECT_EQ(Split("a.b.c", '.'), (Parts{"a", "b", "c"}));
  EXPECT_EQ(Split(".a..b.", '.'), (Parts{"", "a", "", "b", ""}));
}

}  // namespace
}  // namespace msprobe
