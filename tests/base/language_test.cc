#include "engine/base/language.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "engine/base/catalogue.h"

namespace msprobe {
namespace {

using ::testing::AnyOf;

// The last place of a long pattern holds two sentences: the pattern says nothing else by chance.
TEST(CatalogueTest, ALongPatternMayHoldSentencesThatStandSideBySide) {
  const Catalogue catalogue(
      "msgid \"All {} values agree, but the calls are not the same: {}.\"\n"
      "msgstr \"{} 个值全部一致，但调用不同：{}。\"\n"
      "msgid \"{} calls differ\"\nmsgstr \"{} 个调用不一致\"\n");
  EXPECT_EQ(
      catalogue.Translate(
          "All 2 values agree, but the calls are not the same: 3 calls differ; 4 calls differ."),
      "2 个值全部一致，但调用不同：3 个调用不一致；4 个调用不一致。");
}

// "the first is {}" is the end of its sentence.
TEST(CatalogueTest, APlaceDoesNotTakeTheNextSentence) {
  const Catalogue catalogue(
      "msgid \"{} calls are only in the {}, the first is {name}\"\n"
      "msgstr \"有 {} 个调用只在{}侧，首个是 {}\"\n"
      "msgid \"target\"\nmsgstr \"待比对\"\nmsgid \"golden\"\nmsgstr \"标杆\"\n");
  EXPECT_EQ(catalogue.Translate("2 calls are only in the target, the first is Torch.mm.0; "
                                "3 calls are only in the golden, the first is Torch.mm.1"),
            "有 2 个调用只在待比对侧，首个是 Torch.mm.0；有 3 个调用只在标杆侧，首个是 Torch.mm.1");
}

TEST(CatalogueTest, ASentenceBehindANameIsFound) {
  const Catalogue catalogue(
      "msgid \"{} of {name} is off by {}\"\nmsgstr \"{1} 的{0}偏差 {2}\"\n"
      "msgid \"norm\"\nmsgstr \"范数\"\n");
  EXPECT_EQ(catalogue.Translate("Torch.mm.0: norm of a is off by 1%"),
            "Torch.mm.0：a 的范数偏差 1%");
}

TEST(CatalogueTest, NoBlankAndNoEnglishCommaStaysBetweenChineseCharacters) {
  const Catalogue catalogue(
      "msgid \"expected {}, found {}\"\nmsgstr \"应为 {} 而不是 {}\"\n"
      "msgid \"a call\"\nmsgstr \"一个调用\"\n"
      "msgid \"{} values{}\"\nmsgstr \"{} 个值{}\"\n"
      "msgid \"up to here\"\nmsgstr \"到此处\"\n");
  EXPECT_EQ(catalogue.Translate("expected a call, found Torch.mm"), "应为一个调用而不是 Torch.mm");
  EXPECT_EQ(catalogue.Translate("expected Torch.mm, found a call"), "应为 Torch.mm 而不是一个调用");
  EXPECT_EQ(catalogue.Translate("3 values up to here"), "3 个值到此处");
  EXPECT_EQ(catalogue.Translate("3 values, msprobe 27"), "3 个值，msprobe 27");
  // A blank in a name is part of the name.
  EXPECT_EQ(catalogue.Translate("expected 我的 模型, found Torch.mm"),
            "应为我的 模型而不是 Torch.mm");
}

TEST(CatalogueTest, NamesThatAreWordsStay) {
  const Catalogue catalogue(
      "msgid \"maximum\"\nmsgstr \"最大值\"\nmsgid \"target\"\nmsgstr \"待比对\"\n"
      "msgid \"{} of {name}\"\nmsgstr \"{1} 的{0}\"\n"
      "msgid \"{name} is off by {} in the {}\"\nmsgstr \"{0}在{2}侧偏差 {1}\"\n");
  EXPECT_EQ(catalogue.Translate("maximum of target is off by 3 in the target"),
            "target 的最大值在待比对侧偏差 3");
  EXPECT_EQ(catalogue.Translate("target is off by 3 in the target"), "target在待比对侧偏差 3");
  EXPECT_EQ(catalogue.Translate("target, maximum is off by 3 in the target"),
            "target, maximum在待比对侧偏差 3");
  EXPECT_EQ(catalogue.Translate("target"), "待比对");
}

TEST(CatalogueTest, TheLastBracketIsTheAside) {
  const Catalogue catalogue(
      "msgid \"{} times\"\nmsgstr \"{} 次\"\n"
      "msgid \"{name} for {name}\"\nmsgstr \"{} 代替 {}\"\n");
  EXPECT_EQ(catalogue.Translate("Linear (backward) for linear (backward) (2 times)"),
            "Linear (backward) 代替 linear (backward)（2 次）");
  EXPECT_EQ(catalogue.Translate("cat, cat for Linear"), "cat, cat 代替 Linear");
  EXPECT_EQ(catalogue.Translate("what stands for Linear"), std::nullopt);
}

TEST(LanguageNamed, TakesCountriesAndCodesets) {
  EXPECT_EQ(LanguageNamed("zh"), Language::kChinese);
  EXPECT_EQ(LanguageNamed("zh_CN.UTF-8"), Language::kChinese);
  EXPECT_EQ(LanguageNamed("en_US.UTF-8"), Language::kEnglish);
  EXPECT_EQ(LanguageNamed("de"), std::nullopt);
  EXPECT_EQ(LanguageNamed(""), std::nullopt);
}

constexpr char kTable[] = R"(
msgid "{} calls differ"
msgstr "{} 个调用不同"

msgid "{} in {}"
msgstr "{1} 中的 {0}"

msgid "maximum of {}"
msgstr "{} 的最大值"

msgid "next"
msgstr "下一步"
)";

TEST(CatalogueTest, PlacesKeepTheirTextsAndMayChangeTheirOrder) {
  const Catalogue catalogue(kTable);
  EXPECT_EQ(catalogue.Translate("3 calls differ"), "3 个调用不同");
  EXPECT_EQ(catalogue.Translate("maximum of output.0"), "output.0 的最大值");
  EXPECT_EQ(catalogue.Translate("next"), "下一步");
}

TEST(CatalogueTest, NamesAndUnknownTextsStay) {
  const Catalogue catalogue(kTable);
  EXPECT_EQ(catalogue.Translate("Torch.mm.0.forward"), std::nullopt);
  EXPECT_EQ(catalogue.Translate(""), std::nullopt);
  EXPECT_EQ(catalogue.Translate("nothing of this is known"), std::nullopt);
}

TEST(CatalogueTest, ASentenceIsTranslatedPartByPart) {
  const Catalogue catalogue(kTable);
  const std::optional<std::string> text = catalogue.Translate("3 calls differ; maximum of a");
  ASSERT_TRUE(text.has_value());
  EXPECT_THAT(*text, AnyOf("3 个调用不同；a 的最大值", "3 个调用不同; a 的最大值"));
}

TEST(CatalogueTest, LongAndStrangeTextsEnd) {
  const Catalogue& catalogue = Catalogue::Chinese();
  for (const char* part : {"(", "\"", "; ", "{} ", "\xff", "next: ", "1 calls differ, "}) {
    std::string text;
    while (text.size() < 20000) text += part;
    catalogue.Translate(text);
    catalogue.Translate(text.substr(0, 3000));
  }
}

TEST(LanguageTest, EnglishStaysAsItIs) {
  SetLanguage(Language::kEnglish);
  EXPECT_EQ(Translated("FIRST DIVERGENCE"), "FIRST DIVERGENCE");
  SetLanguage(Language::kChinese);
  EXPECT_EQ(Translated("FIRST DIVERGENCE"), "首个偏差");
  EXPECT_EQ(Translated("Torch.mm.0.forward"), "Torch.mm.0.forward");
  SetLanguage(Language::kEnglish);
}

}  // namespace
}  // namespace msprobe
