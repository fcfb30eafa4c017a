#include "engine/base/messages/message.h"

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <type_traits>

#include "engine/base/messages/language.h"
#include "engine/base/status.h"

namespace msprobe {
namespace {

class MessageTest : public ::testing::Test {
 protected:
  void SetUp() override { SetLanguage(Language::kChinese); }
  void TearDown() override { SetLanguage(Language::kEnglish); }
};

TEST_F(MessageTest, PlacesMayStandInAnotherOrder) {
  const Message text = "{} of {} is off by {}"_t("norm"_t, std::string("output.0"), 12);
  EXPECT_EQ(text.English(), "norm of output.0 is off by 12");
  EXPECT_EQ(text.Shown(), "output.0 的范数偏差 12");
}

TEST_F(MessageTest, ANameIsNoWordOfTheProgram) {
  const Message text =
      "{} of {} is off by {}"_t("norm"_t, std::string("norm"), std::string("maximum"));
  EXPECT_EQ(text.Shown(), "norm 的范数偏差 maximum");
  const std::string hostile = "{0} of {} is off by {}; { target";
  EXPECT_EQ("in {}"_t(hostile).English(), "in " + hostile);
  EXPECT_EQ("in {}"_t(hostile).Shown(), "位于 " + hostile);
}

TEST_F(MessageTest, NumbersAreFormattedAsThePlaceSays) {
  EXPECT_EQ("confidence {:.0f}%"_t(99.6).Shown(), "置信度 100%");
  EXPECT_EQ("{} of {}"_t(uint64_t{1} << 63, int64_t{-1}).English(), "9223372036854775808 of -1");
  EXPECT_EQ("{:>6}|{:.2e}"_t(std::string("ab"), 12345.0).English(), "    ab|1.23e+04");
  EXPECT_EQ("{{{}}} of {}"_t(1, true).English(), "{1} of 1");
}

TEST_F(MessageTest, TheCompilerCountsThePlaces) {
  constexpr auto format = "{} of {{}} {:.2g}"_t;
  static_assert(std::is_invocable_v<decltype(format), int, double>);
  static_assert(!std::is_invocable_v<decltype(format), int>);
  static_assert(!std::is_invocable_v<decltype(format), int, int, int>);
  static_assert(!std::is_convertible_v<decltype(format), Message>);
  static_assert(std::is_same_v<decltype("no place"_t), Message>);
}

TEST_F(MessageTest, ASentenceThatIsNoLiteralHasItsPlacesCounted) {
  const std::string sentence = "{} of {{}} is off by {:d}";
  const Message::Place places[] = {"norm"_t, 12};
  const std::optional<Message> text = Message::Of(sentence, places);
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(text->English(), "norm of {} is off by 12");
  EXPECT_FALSE(Message::Of(sentence, std::span(places, 1)).has_value());
  EXPECT_FALSE(Message::Of("no place", places).has_value());
  EXPECT_FALSE(Message::Of("{ is not closed", std::span(places, 1)).has_value());
}

TEST_F(MessageTest, WithoutATranslationASentenceIsEnglish) {
  EXPECT_EQ("qwerty {} uiop {}"_t("target"_t, 3).Shown(), "qwerty 待比对 uiop 3");
}

TEST_F(MessageTest, ListsAreJoinedAsTheLanguageDoes) {
  const Message list =
      Message::Joined({"norm"_t, Message(), std::string("a; b"), "maximum"_t}, "; ");
  EXPECT_EQ(list.English(), "norm; a; b; maximum");
  EXPECT_EQ(list.Shown(), "范数；a; b；最大值");
  EXPECT_EQ(Message::Joined({Message(), "norm"_t}, "; ").Shown(), "范数");
  EXPECT_TRUE(Message::Joined({}, "; ").empty());
  EXPECT_EQ("in {}"_t(Message::Joined({"norm"_t, "maximum"_t}, " and ")).Shown(),
            "位于范数和最大值");
}

TEST_F(MessageTest, AnErrorIsMadeOfTexts) {
  const Status status = NotFound("/nowhere").Expected("{} steps"_t(3)).Found("{} steps"_t(2));
  EXPECT_EQ(status.message(), "/nowhere: does not exist; expected 3 steps, found 2 steps");
  EXPECT_EQ(status.ShownMessage(), "/nowhere: 不存在；应为 3 个 step，实际为 2 个 step");
  const Status outer = InvalidArgument("nothing was compared: {}"_t(status.AsMessage()));
  EXPECT_EQ(outer.ShownMessage(),
            "没有比对任何内容：/nowhere: 不存在；应为 3 个 step，实际为 2 个 step");
}

TEST_F(MessageTest, AProcessHandsAMessageToAnotherOne) {
  const std::string hostile = "3:S{}\n";
  const Message list = Message::Joined({"{} steps"_t(3), hostile, "norm"_t}, "; ");
  for (const Message& message :
       {Message(), Message(hostile), "norm"_t, "{} of {} is off by {:.2f}"_t("norm"_t, list, 0.5),
        list, Message::Joined({"norm"_t, "norm"_t}, "\n"), "{}"_t(hostile),
        "{} ({})"_t("norm"_t, 3)}) {
    const Message back = Message::Unpacked(message.Packed());
    EXPECT_EQ(back.English(), message.English());
    EXPECT_EQ(back.Shown(), message.Shown()) << message.English();
  }
  EXPECT_EQ(Message::Unpacked("{{}} of {}"_t(3).Packed()).English(), "{} of 3");
  const std::vector<Message> many(900, "norm"_t), more(2000, "norm"_t);
  for (const auto& parts : {many, more}) {
    const Message long_list = Message::Joined(parts, ", ");
    EXPECT_EQ(Message::Unpacked(long_list.Packed()).English(), long_list.English());
  }
  // What this program did not write is a name.
  for (const std::string line :
       {"plain", "S1:", "S9:qwerty {}1:N1:a", "N5:abc", "L2:; 9999:", "S4:norm3:", "N3:abcd",
        "S4:norm0:x", "\xff", "S18446744073709551615:a"})
    EXPECT_FALSE(Message::Unpacked(line).Shown().empty()) << line;
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "L2:; 1:";
  EXPECT_EQ(Message::Unpacked(deep + "N1:a").English(), deep + "N1:a");
}

TEST_F(MessageTest, ATextOfAFileMayBeASentence) {
  EXPECT_EQ(Message::OfText("norm").Shown(), "范数");
  EXPECT_EQ(Message::OfText("{} steps").Shown(), "{} steps");
  EXPECT_EQ(Message::OfText("Torch.mm.0").Shown(), "Torch.mm.0");
}

}  // namespace
}  // namespace msprobe
