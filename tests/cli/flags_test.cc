#include "cli/command_line/flags.h"

#include <gmock/gmock.h>

#include "engine/base/messages/message.h"

namespace msprobe::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Flags, ValuesReachTheirVariables) {
  bool exit_code = false;
  int64_t limit = 0;
  std::string dump, format = "table";
  std::vector<std::string> names;
  Flags flags("prints a dump"_t, "msprobe show");
  flags.Text("dump", &dump, "the dump"_t);
  flags.Text("-f,--format", &format, "what is printed"_t);
  flags.Number("--limit", &limit, "records at most"_t);
  flags.Switch("--exit-code", &exit_code, "1 when something differs"_t);
  flags.Texts("--names", &names, "names of calls"_t);
  const Flags::Parsed parsed =
      flags.Parse({"a", "-f", "json", "--limit=7", "--exit-code", "--names", "x", "y"});
  EXPECT_EQ(parsed.error, "");
  EXPECT_THAT(parsed.extra, IsEmpty());
  EXPECT_EQ(dump, "a");
  EXPECT_EQ(format, "json");
  EXPECT_EQ(limit, 7);
  EXPECT_TRUE(exit_code);
  EXPECT_THAT(names, ElementsAre("x", "y"));
}

TEST(Flags, WhatIsGivenIsKnown) {
  std::string a = "1", b = "2";
  Flags flags({}, "");
  const Flag with = flags.Text("--with", &a, {});
  const Flag without = flags.Text("--without", &b, {});
  (void)flags.Parse({"--with", "1"});
  EXPECT_TRUE(with.given());
  EXPECT_FALSE(without.given());
  EXPECT_FALSE(Flag().given());
}

TEST(Flags, ANameIsToldFromAPlace) {
  std::string target, output;
  Flags flags({}, "");
  flags.Text("target,--target_path", &target, {});
  flags.Text("-o,--output_path", &output, {});
  (void)flags.Parse({"a", "--output_path=b"});
  EXPECT_TRUE(flags.IsGiven("--target_path"));
  EXPECT_FALSE(flags.IsGivenByName("--target_path"));
  EXPECT_TRUE(flags.IsGivenByName("--output_path"));
  Flags named({}, "");
  named.Text("target,--target_path", &target, {});
  (void)named.Parse({"--target_path", "a"});
  EXPECT_TRUE(named.IsGivenByName("--target_path"));
}

// The target and the golden that `words` name, or the error.
std::string Sides(const std::vector<std::string>& words) {
  std::string target, golden, output;
  Flags flags({}, "");
  flags.Text("target,--target_path", &target, {}).Required();
  flags.Text("golden,--golden_path", &golden, {}).Required();
  flags.Text("-o", &output, {});
  const Flags::Parsed parsed = flags.Parse(words);
  for (const std::string& word : parsed.extra) golden += " extra " + word;
  return parsed.error.empty() ? target + " against " + golden : parsed.error.English();
}

TEST(Flags, AnArgumentIsKnownByItsPlaceOrByItsName) {
  EXPECT_EQ(Sides({"a", "b"}), "a against b");
  EXPECT_EQ(Sides({"a", "-o", "x", "b"}), "a against b");
  EXPECT_EQ(Sides({"--target_path", "a", "b"}), "a against b");
  EXPECT_EQ(Sides({"--golden_path", "b", "a"}), "a against b");
  EXPECT_EQ(Sides({"a", "--golden_path=b"}), "a against b");
  EXPECT_EQ(Sides({"a"}), "--golden_path is required");
  EXPECT_EQ(Sides({"a", "b", "c"}), "a against b extra c");
  EXPECT_EQ(Sides({"a", "b", "--golden_path", "c"}),
            "-gp (--golden_path): expected one value, found 2");
}

// The error for `words`, if --format must be table or json, --limit positive, --count a number,
// --even a text of even length, --pair two texts, and --short has no value.
std::string ErrorOf(const std::vector<std::string>& words) {
  std::string format, even;
  int64_t limit = 0;
  std::vector<std::string> pair;
  bool is_short = false;
  Flags flags({}, "");
  flags.Text("--format", &format, {}).OneOf({"table", "json"});
  flags.Number("--limit", &limit, {}).Positive();
  flags.Number("--count", &limit, {});
  flags.Text("--even", &even, {}).Check([](const std::string& text) {
    return text.size() % 2 == 0 ? Message() : "odd: {}"_t(text);
  });
  flags.Texts("--pair", &pair, {}).Values(2, 2);
  flags.Switch("--short", &is_short, {});
  return flags.Parse(words).error.English();
}

TEST(Flags, ChecksAreErrors) {
  EXPECT_EQ(ErrorOf({"--format", "json", "--limit", "1", "--even", "ab", "--pair", "a", "b"}), "");
  EXPECT_THAT(ErrorOf({"--format", "xml"}),
              HasSubstr("--format: expected table or json, found \"xml\""));
  EXPECT_EQ(ErrorOf({"--format"}), "--format: expected a value (TEXT), found none");
  EXPECT_EQ(ErrorOf({"--limit"}), "--limit: expected a value (NUMBER), found none");
  EXPECT_EQ(ErrorOf({"--count", "many"}), "--count: expected a number, found \"many\"");
  EXPECT_EQ(ErrorOf({"--short=maybe"}), "--short: expected no value");
  EXPECT_THAT(ErrorOf({"--limit", "0"}),
              HasSubstr("--limit: expected a number of 1 or more, found 0"));
  EXPECT_THAT(ErrorOf({"--even", "abc"}), HasSubstr("--even: odd: abc"));
  EXPECT_THAT(ErrorOf({"--pair", "a"}), HasSubstr("--pair: expected 2 values, found 1"));
  EXPECT_EQ(ErrorOf({"--pair"}), "--pair: expected 2 values, found none");
}

TEST(Flags, TheNearestChoiceIsOffered) {
  std::string format;
  Flags flags({}, "");
  flags.Text("--format", &format, {}).OneOf({"table", "json"});
  EXPECT_EQ(flags.Parse({"--format", "jsno"}).nearest, "json");
}

TEST(Flags, RequiredFlagsAreMissed) {
  std::string path;
  Flags flags({}, "");
  flags.Text("--path", &path, {}).Required();
  EXPECT_EQ(flags.Parse({}).error, "--path is required");
}

// What is missing of `words`, and the line that was meant.
std::pair<std::string, std::string> Meant(const std::vector<std::string>& words) {
  std::string input, output, format;
  Flags flags({}, "msprobe show");
  flags.Text("-i,--input", &input, "the dump"_t).TypeName("PATH").Required();
  flags.Text("--output", &output, "the folder"_t).TypeName("FOLDER").Required();
  flags.Text("--format", &format, "what is printed"_t);
  const Flags::Parsed parsed = flags.Parse(words);
  return {flags.FirstMissing().English(), flags.Completed(words, parsed.extra)};
}

TEST(Flags, AWordWithoutItsFlagGetsIt) {
  using ::testing::Pair;
  const std::string input = "-i (--input) is required: the dump";
  EXPECT_THAT(Meant({}), Pair(input, "msprobe show -i PATH --output FOLDER"));
  EXPECT_THAT(Meant({"a"}), Pair(input, "msprobe show -i a --output FOLDER"));
  EXPECT_THAT(Meant({"--format", "json", "a", "b"}),
              Pair(input, "msprobe show --format json -i a --output b"));
  EXPECT_THAT(Meant({"-i", "a", "b"}),
              Pair("--output is required: the folder", "msprobe show -i a --output b"));
  EXPECT_THAT(Meant({"a", "b", "c"}), Pair(input, ""));
}

TEST(Flags, AnArgumentOfAPlaceIsNamedByIt) {
  std::string dump, call;
  Flags flags({}, "msprobe replay");
  flags.Text("dump", &dump, "the dump"_t).Required();
  flags.Text("call", &call, "the call"_t).Required();
  const std::vector<std::string> words = {"a"};
  const Flags::Parsed parsed = flags.Parse(words);
  EXPECT_EQ(flags.FirstMissing(), "CALL is required: the call");
  EXPECT_EQ(flags.Completed(words, parsed.extra), "msprobe replay a CALL");
}

TEST(Flags, PathsGoToAVerbThatRequiresNone) {
  std::vector<std::string> compare;
  std::string output;
  Flags flags({}, "msprobe config_check");
  flags.Texts("-c,--compare", &compare, "two"_t).Values(2, 2).TypeName("PATH PATH");
  flags.Text("-o", &output, "the file"_t).TypeName("FILE");
  const std::vector<std::string> words = {"a", "b"};
  const Flags::Parsed parsed = flags.Parse(words);
  EXPECT_EQ(flags.FirstMissing(), "");
  EXPECT_EQ(flags.Completed(words, parsed.extra), "msprobe config_check -c a b");
}

TEST(Flags, AWordWithoutAFlagGoesToTheUsualOne) {
  const auto completed = [&](const std::vector<std::string>& words) {
    std::string dump, call, output;
    Flags flags({}, "msprobe op_generate");
    flags.Text("-i", &dump, "the dump"_t).TypeName("PATH").Required();
    flags.Text("-o", &output, "the folder"_t).TypeName("FOLDER");
    flags.Text("--api_name", &call, "the call"_t).Usual();
    const Flags::Parsed parsed = flags.Parse(words);
    return flags.Completed(words, parsed.extra);
  };
  EXPECT_EQ(completed({"-i", "a", "linear.0"}), "msprobe op_generate -i a -api linear.0");
  EXPECT_EQ(completed({"a", "linear.0"}), "msprobe op_generate -i a -api linear.0");
  EXPECT_EQ(completed({"a"}), "msprobe op_generate -i a");
}

TEST(Flags, AnOptionalValueMayBeLeftOut) {
  std::string file;
  bool other = false;
  Flags flags({}, "");
  const Flag flag = flags.Text("--file", &file, {}).Values(0, 1).TypeName("[FILE]");
  flags.Switch("--other", &other, {});
  EXPECT_EQ(flags.Parse({"--file", "--other"}).error, "");
  EXPECT_TRUE(flag.given());
  EXPECT_TRUE(other);
  EXPECT_EQ(file, "");
  EXPECT_THAT(flags.Help(false, 80), HasSubstr("--file [FILE]"));
  EXPECT_TRUE(flags.All()[0].optional_value && flags.All()[0].takes_path);
  EXPECT_FALSE(flags.All()[1].optional_value || flags.All()[1].takes_path);
}

TEST(Flags, ListsTakeOneValueEachOrAll) {
  std::vector<std::string> each, repeated;
  Flags flags({}, "");
  flags.Texts("--each", &each, {}).OneValueEach();
  flags.Texts("--repeated", &repeated, {}).Values(1, 1).Repeatable();
  const Flags::Parsed parsed =
      flags.Parse({"--each", "a", "b", "--repeated", "c", "--repeated", "d", "--each", "e"});
  EXPECT_EQ(parsed.error, "");
  EXPECT_THAT(each, ElementsAre("a", "e"));
  EXPECT_THAT(repeated, ElementsAre("c", "d"));
  EXPECT_THAT(parsed.extra, ElementsAre("b"));
}

TEST(Flags, HelpShowsNamesDefaultsAndFooter) {
  std::string target, output = "./output", suffix = "x", format = "table";
  Flags flags("compares two dumps"_t, "msprobe compare");
  flags.Text("target,--target_path", &target, "the run under test"_t).TypeName("PATH").Required();
  flags.Text("-o,--output_path", &output, "folder for the results"_t).ShowDefault();
  flags.Text("--suffix", &suffix, "after the names"_t);
  flags.Text("--format", &format, "what is printed"_t).OneOf({"table", "json"}).ShowDefault();
  flags.Footer("see docs/reference/compare.md"_t);
  EXPECT_EQ(flags.Help(false, 80), R"(compares two dumps

usage: msprobe compare TARGET [FLAGS]

  TARGET, -tp, --target_path PATH
                            the run under test
  -o, --output_path TEXT    folder for the results (default: ./output)
  --suffix TEXT             after the names
  --format table|json       what is printed (default: table)

see docs/reference/compare.md
)");
  EXPECT_TRUE(flags.Parse({"--help", "--nosuch"}).help);
}

TEST(Flags, HelpListsTheCommonFlagsAndHelpAllAll) {
  bool often = false, seldom = false, another = false;
  Flags flags("does it"_t, "msprobe it");
  flags.Group("First group"_t);
  flags
      .Switch("--often", &often,
              "what people use, with words that do not fit into a line of sixty"_t)
      .Common();
  flags.Switch("--seldom", &seldom, "what people do not use"_t);
  flags.Group("Second group"_t);
  flags.Switch("--another", &another, "the same"_t);
  EXPECT_EQ(flags.Help(false, 60), R"(does it

usage: msprobe it [FLAGS]

First group:
  --often                   what people use, with words that
                            do not fit into a line of sixty

msprobe it --help-all lists all 3 flags.
)");
  const std::string all = flags.Help(true, 60);
  EXPECT_THAT(all, HasSubstr("--seldom"));
  EXPECT_THAT(all, HasSubstr("\nSecond group:\n  --another "));
  EXPECT_THAT(all, Not(HasSubstr("--help-all")));
  EXPECT_TRUE(flags.Parse({"--help-all"}).help_all);
}

TEST(Flags, WordsMeanTheSame) {
  std::string dump, format = "table", mapping, quiet;
  std::vector<std::string> names;
  bool exact = false, other = false;
  const auto add = [&](Flags& flags) {
    flags.Text("dump,--dump_path", &dump, {});
    flags.Text("-f,--format", &format, {});
    flags.Text("--mapping", &mapping, {}).Values(0, 1);
    flags.Text("--quiet", &quiet, {});
    flags.Texts("--names", &names, {});
    flags.Switch("--exact", &exact, {});
    flags.Switch("--other", &other, {});
  };
  Flags flags({}, "");
  add(flags);
  (void)flags.Parse({"a b", "-f", "json", "--mapping", "--names", "x", "y", "--exact"});
  EXPECT_TRUE(flags.IsGiven("--format"));
  EXPECT_FALSE(flags.IsGiven("--other"));
  const std::vector<std::string_view> without = {"--format"};
  const std::vector<std::string> words = flags.Words(without);
  EXPECT_THAT(words,
              ElementsAre("--dump_path=a b", "--mapping", "--names=x", "--names=y", "--exact"));
  dump = "", format = "table", exact = false;
  names.clear();
  Flags again({}, "");
  add(again);
  EXPECT_EQ(again.Parse(words).error, "");
  EXPECT_EQ(dump, "a b");
  EXPECT_EQ(format, "table");
  EXPECT_THAT(names, ElementsAre("x", "y"));
  EXPECT_TRUE(exact);
}

TEST(Flags, NamesAndWhatTakesAValue) {
  std::string output;
  bool xlsx = false;
  Flags flags({}, "");
  flags.Text("-o,--output_path", &output, {});
  flags.Switch("--xlsx", &xlsx, {});
  EXPECT_THAT(flags.Names(),
              ElementsAre("--help", "-h", "--help-all", "--output_path", "-o", "--xlsx"));
  EXPECT_TRUE(flags.TakesValue("-o"));
  EXPECT_FALSE(flags.TakesValue("--xlsx"));
  EXPECT_FALSE(flags.TakesValue("--nosuch"));
}

}  // namespace
}  // namespace msprobe::cli
