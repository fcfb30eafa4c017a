#include "engine/base/display_width.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace msprobe {
namespace {

TEST(DisplayWidth, CountsColumnsOfATerminal) {
  EXPECT_EQ(DisplayWidth(""), 0);
  EXPECT_EQ(DisplayWidth("loss"), 4);
  EXPECT_EQ(DisplayWidth("Grüße"), 5);
  EXPECT_EQ(DisplayWidth("模型/训练"), 9);
  EXPECT_EQ(DisplayWidth("한국"), 4);
  EXPECT_EQ(DisplayWidth("ａ＋"), 4);              // full width
  EXPECT_EQ(DisplayWidth("\xf0\x9f\x98\x80"), 2);  // an emoji
  EXPECT_EQ(DisplayWidth("e\xcc\x81"), 1);         // e and a combining accent
  EXPECT_EQ(DisplayWidth("\xff\xe6\xa8"), 3);      // invalid UTF-8
}

// Code that pads with fmt and code that uses DisplayWidth must agree.
TEST(DisplayWidth, AgreesWithThePaddingOfFmt) {
  for (const std::string text : {"loss", "模型", "한", "〈x〉", "𠀀", "é", "…"}) {
    const std::string padded = fmt::format("{:<10}|", text);
    EXPECT_EQ(DisplayWidth(padded), 11) << text;
  }
}

TEST(PrefixWithin, NeverCutsACharacter) {
  EXPECT_EQ(PrefixWithin("loss", 2), 2u);
  EXPECT_EQ(PrefixWithin("loss", 9), 4u);
  EXPECT_EQ(PrefixWithin("模型", 0), 0u);
  EXPECT_EQ(PrefixWithin("模型", 1), 0u);
  EXPECT_EQ(PrefixWithin("模型", 2), 3u);
  EXPECT_EQ(PrefixWithin("模型", 3), 3u);
  EXPECT_EQ(PrefixWithin("模型", 4), 6u);
  EXPECT_EQ(PrefixWithin("e\xcc\x81x", 1), 3u);  // the accent stays with its letter
}

}  // namespace
}  // namespace msprobe
