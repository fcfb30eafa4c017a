#include "cli/parse/parse_shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace msprobe::cli {
namespace {

using testing::ElementsAre;

std::vector<std::string> Words(std::string_view line) {
  const auto words = SplitShellWords(line);
  EXPECT_TRUE(words.ok()) << line;
  return words.ok() ? *words : std::vector<std::string>{"ERROR"};
}

TEST(ParseShell, LinesAreCutAsAShellCutsThem) {
  EXPECT_THAT(Words("pt  -n\ta.npy\r\n"), ElementsAre("pt", "-n", "a.npy"));
  EXPECT_THAT(Words(R"(pt -n "a b.npy")"), ElementsAre("pt", "-n", "a b.npy"));
  EXPECT_THAT(Words(R"(pt -n a\ b.npy 'c"\d')"), ElementsAre("pt", "-n", "a b.npy", R"(c"\d)"));
  EXPECT_THAT(Words(R"("a\"b\\c\d" x''y "")"), ElementsAre(R"(a"b\c\d)", "xy", ""));
  EXPECT_THAT(Words(" \t "), ElementsAre());
  EXPECT_THAT(Words("$HOME *.npy `ls`"), ElementsAre("$HOME", "*.npy", "`ls`"));
  EXPECT_FALSE(SplitShellWords("pt 'a").ok());
  EXPECT_FALSE(SplitShellWords("pt a\"").ok());
}

TEST(ParseShell, KnowsItsCommands) {
  for (const char* word : {"pt", "cn", "pk", "vc", "dc", "cad", "run", "help"})
    EXPECT_TRUE(IsParseCommand(word)) << word;
  EXPECT_FALSE(IsParseCommand("rm"));
}

}  // namespace
}  // namespace msprobe::cli
