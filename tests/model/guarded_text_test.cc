#include "engine/model/guarded_text.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace msprobe {
namespace {

std::string Guarded(std::string_view text) {
  std::string room;
  return std::string(GuardText(text, &room));
}
std::string Unguarded(std::string_view text) {
  std::string room;
  return std::string(UnguardText(text, &room));
}

TEST(GuardedText, ASignGetsABackslash) {
  EXPECT_EQ(Guarded("-2j"), "\\-2j");
  EXPECT_EQ(Guarded("=1+2"), "\\=1+2");
  EXPECT_EQ(Guarded("a;-b;;＠"), "a;\\-b;;\\＠");
  EXPECT_EQ(Guarded("\\-"), "\\\\-");
  for (const std::string_view plain : {"", "mean", "a-b", "a; -b", "\\", "\\a;\\", "；-"})
    EXPECT_EQ(Guarded(plain), plain);
}

TEST(GuardedText, OlderDumpsOfOursAreReadAsTheyAre) {
  for (const std::string_view text : {"-2j", "a;=b", "", "\\n", "\\"})
    EXPECT_EQ(Unguarded(text), text);
}

TEST(GuardedText, EveryTextComesBack) {
  const std::string_view pieces[] = {"+", "-",  "=",  "%",  "@",  ";",  "\\", "a",
                                     " ", "＋", "－", "＝", "％", "＠", "；", "\n"};
  std::mt19937_64 random(7);
  for (int i = 0; i < 100000; ++i) {
    std::string text;
    for (size_t n = random() % 7; n > 0; --n) text += pieces[random() % std::size(pieces)];
    const std::string guarded = Guarded(text);
    ASSERT_EQ(Unguarded(guarded), text);
    // Signs that msprobe 26 refuses (core/common/const.py, STRING_BLACKLIST).
    for (const std::string_view sign : {"+", "-", "=", "%", "@", "＋", "－", "＝", "％", "＠"}) {
      ASSERT_FALSE(guarded.starts_with(sign)) << text;
      ASSERT_EQ(guarded.find(';' + std::string(sign)), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace msprobe
