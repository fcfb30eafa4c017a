#include "cli/command_line/arguments.h"

#include <gmock/gmock.h>

namespace msprobe::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Arguments, OneDashFlagsBecomeLong) {
  EXPECT_THAT(NormalizeArguments({"-tp", "a", "-gp=b", "-da", "-fm", "-tensor_log", "-o", "x"}),
              ElementsAre("--target_path", "a", "--golden_path=b", "--diff_analyze",
                          "--fuzzy_match", "--is_print_compare_log", "-o", "x"));
}

TEST(Arguments, OnlyWholeTokensAreAliases) {
  EXPECT_THAT(NormalizeArguments({"-tpx", "tp", "./-tp"}), ElementsAre("-tpx", "tp", "./-tp"));
}

TEST(Arguments, ArgumentsAfterTwoDashesAreNotChanged) {
  EXPECT_THAT(NormalizeArguments({"-tp", "--", "-tp"}), ElementsAre("--target_path", "--", "-tp"));
}

TEST(Arguments, HelpShowsTheShortSpelling) {
  EXPECT_EQ(ShortSpelling("--target_path"), "-tp");
  EXPECT_EQ(ShortSpelling("--xlsx"), "");
}

TEST(Arguments, AFlagOfAnotherVerbIsUnknown) {
  const std::vector<std::string> known = {"--data", "--db"};
  EXPECT_THAT(UnknownFlag("-i", "msprobe data2db", known).ToString(), Not(HasSubstr("compare")));
  EXPECT_THAT(UnknownFlag("--db_path", "msprobe data2db", known).ToString(),
              Not(HasSubstr("csv_path")));
}

TEST(Arguments, UnknownFlagNamesTheNearest) {
  const std::vector<std::string> known = {"--xlsx", "--format"};
  EXPECT_THAT(UnknownFlag("--xslx", "msprobe compare", known).ToString(),
              HasSubstr("did you mean --xlsx?"));
  EXPECT_THAT(UnknownFlag("--zzzzzz", "msprobe compare", known).ToString(),
              ::testing::Not(HasSubstr("did you mean")));
  for (const char* flag : {"-i", "--"})
    EXPECT_THAT(
        UnknownFlag(flag, "msprobe compare", std::vector<std::string>{"-h", "-o"}).ToString(),
        Not(HasSubstr("did you mean")));
}

TEST(Arguments, FlagsOfOlderToolsSayWhy) {
  const Status status = UnknownFlag("--backend", "msprobe compare", {});
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.ToString(), HasSubstr("training is not compared with inference"));
}

TEST(Arguments, UnknownVerb) {
  const std::vector<std::string_view> verbs = {"compare", "show"};
  EXPECT_THAT(UnknownVerb("compere", verbs).ToString(), HasSubstr("msprobe compare"));
  EXPECT_THAT(UnknownVerb("x\x1b[31m", verbs).ToString(), ::testing::Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace msprobe::cli
