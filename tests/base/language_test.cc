#include "engine/base/messages/language.h"

#include <gtest/gtest.h>

#include "engine/base/messages/catalogue.h"

namespace msprobe {
namespace {

TEST(CatalogueTest, FindsASentenceByItsPlainPlaces) {
  const Catalogue catalogue(
      "# a comment\nmsgid \"\"\nmsgstr \"Language: zh_CN\\n\"\n\n"
      "msgid \"{} calls \"\n\"differ\"\nmsgstr \"{} 个调用不同\"\n\n"
      "msgid \"{{}} is \\\"{name}\\\"\"\nmsgstr \"{{}} 为 \\\"{}\\\"\"\n");
  EXPECT_EQ(catalogue.Find("{} calls differ"), "{} 个调用不同");
  EXPECT_EQ(catalogue.Find("{:.2g} calls differ"), "{} 个调用不同");
  EXPECT_EQ(catalogue.Find("{{}} is \"{}\""), "{{}} 为 \"{}\"");
  EXPECT_EQ(catalogue.Find("3 calls differ"), "");
  EXPECT_EQ(catalogue.Find(""), "");
}

TEST(CatalogueTest, BrokenFilesAndFormatsEnd) {
  for (const char* po : {"msgid", "msgid \"", "msgstr \"a\"", "msgid \"a\"\nmsgstr", "\"a\"\n\"b"})
    EXPECT_EQ(Catalogue(po).Find("b"), "");
  const Catalogue catalogue("msgid \"{ {\"\nmsgstr \"x\"\n");
  for (const char* sentence : {"{", "}", "{{", "a {", "} {}", "{}{"}) catalogue.Find(sentence);
}

TEST(CatalogueTest, NoBlankAndNoEnglishCommaStaysBetweenChineseCharacters) {
  const auto closed = [](std::initializer_list<std::string_view> parts) {
    std::string text;
    for (const std::string_view part : parts) AppendClosed(part, &text);
    return text;
  };
  EXPECT_EQ(closed({"应为 ", "一个调用", " 而不是 ", "Torch.mm"}), "应为一个调用而不是 Torch.mm");
  EXPECT_EQ(closed({"应为 ", "Torch.mm", " 而不是 ", "一个调用"}), "应为 Torch.mm 而不是一个调用");
  EXPECT_EQ(closed({"3 个值", ", msprobe 27"}), "3 个值，msprobe 27");
  // A blank in a name is part of the name.
  EXPECT_EQ(closed({"应为 ", "我的 模型"}), "应为我的 模型");
}

TEST(LanguageNamed, TakesCountriesAndCodesets) {
  EXPECT_EQ(LanguageNamed("zh"), Language::kChinese);
  EXPECT_EQ(LanguageNamed("zh_CN.UTF-8"), Language::kChinese);
  EXPECT_EQ(LanguageNamed("en_US.UTF-8"), Language::kEnglish);
  EXPECT_EQ(LanguageNamed("de"), std::nullopt);
  EXPECT_EQ(LanguageNamed(""), std::nullopt);
}

}  // namespace
}  // namespace msprobe
